// Names of checkpoints and their files, what has to agree within a manifest and
// between a manifest and a job, and a manifest as text. Pure.
#include "server/checkpoint/checkpoint_manifest.h"

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/crc32c.h"
#include "server/base/field_error.h"
#include "server/base/json.h"
#include "server/base/json_fields.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/part_layout.h"

namespace agg {

namespace {

constexpr absl::string_view kBegunAnew = "begun-anew-";

// Decimal digits as StrCat writes them: one name for one number.
bool ParseDecimal(absl::string_view text, uint64_t* number) {
  return absl::SimpleAtoi(text, number) && absl::StrCat(*number) == text;
}

void CheckPart(const CheckpointPart& part, int ordinal, int num_shards,
               int64_t num_bytes, FieldErrors* errors) {
  const std::string path = absl::StrCat("parts[", ordinal, "]");
  const std::string name = PartFileName(ordinal, num_shards);
  if (part.file != name) {
    errors->Add(FieldError(path + ".file", Quoted(part.file), Quoted(name)));
  }
  if (part.num_bytes != num_bytes) {
    errors->Add(FieldError(path + ".bytes", absl::StrCat(part.num_bytes),
                           absl::StrCat(num_bytes, ", by tensors and shards")));
  }
}

void CheckParts(const CheckpointManifest& manifest, FieldErrors* errors) {
  // Before the plan, which may have a million slices.
  if (manifest.num_shards > 0 &&
      manifest.parts.size() != static_cast<size_t>(manifest.num_shards)) {
    errors->Add(FieldError("parts", absl::StrCat(manifest.parts.size()),
                           absl::StrCat(manifest.num_shards, ", as shards")));
    return;
  }
  const absl::StatusOr<ShardPlan> plan =
      MakeShardPlan(manifest.tensors, manifest.num_shards);
  errors->Add(plan.status());
  if (!plan.ok()) return;
  for (int i = 0; i < manifest.num_shards; ++i) {
    const PartLayout layout =
        MakePartLayout(*plan, i, 1 + manifest.num_state_arrays);
    CheckPart(manifest.parts[i], i, manifest.num_shards, layout.num_bytes,
              errors);
  }
}

}  // namespace

std::string CheckpointFolderName(const CheckpointId& id) {
  return absl::StrCat(id.made, "-", id.version);
}

absl::optional<CheckpointId> ParseCheckpointFolderName(absl::string_view name) {
  const size_t dash = name.find('-');
  CheckpointId id;
  if (dash == absl::string_view::npos ||
      !ParseDecimal(name.substr(0, dash), &id.made) ||
      !ParseDecimal(name.substr(dash + 1), &id.version)) {
    return absl::nullopt;
  }
  return id;
}

std::string BegunAnewName(uint64_t epoch) {
  return absl::StrCat(kBegunAnew, epoch);
}

absl::optional<uint64_t> ParseBegunAnewName(absl::string_view name) {
  uint64_t epoch = 0;
  if (!absl::ConsumePrefix(&name, kBegunAnew) || !ParseDecimal(name, &epoch)) {
    return absl::nullopt;
  }
  return epoch;
}

std::string PartFileName(int ordinal, int num_shards) {
  char name[48];
  std::snprintf(name, sizeof(name), "part-%05d-of-%05d.npz", ordinal,
                num_shards);
  return name;
}

absl::optional<PartName> ParsePartFileName(absl::string_view name) {
  // The numbers have five digits, as no plan has more shards.
  constexpr absl::string_view kExample = "part-00000-of-00001.npz";
  PartName part;
  if (name.size() != kExample.size() ||
      !absl::SimpleAtoi(name.substr(5, 5), &part.ordinal) ||
      !absl::SimpleAtoi(name.substr(14, 5), &part.num_shards) ||
      part.ordinal < 0 || part.ordinal >= part.num_shards ||
      PartFileName(part.ordinal, part.num_shards) != name) {
    return absl::nullopt;
  }
  return part;
}

absl::Status ValidateCheckpointManifest(const CheckpointManifest& manifest) {
  FieldErrors errors;
  if (manifest.job.empty()) {
    errors.Add(FieldError("job", Quoted(""), "the job's name"));
  }
  errors.Add(CheckField(manifest.num_state_arrays >= 0 &&
                            manifest.num_state_arrays < kMaxCheckpointArrays,
                        "state_arrays", manifest.num_state_arrays,
                        absl::StrCat("0 to ", kMaxCheckpointArrays - 1)));
  // What the sizes of the parts follow from has to be right first.
  if (errors.empty()) CheckParts(manifest, &errors);
  return errors.status();
}

absl::Status CheckRestorable(const CheckpointManifest& manifest,
                             const RestoringJob& job) {
  FieldErrors errors;
  if (manifest.job != job.job) {
    errors.Add(FieldError("checkpoint.job", Quoted(manifest.job),
                          absl::StrCat(Quoted(job.job), ", as configured")));
  }
  if (manifest.optimizer != job.optimizer) {
    errors.Add(
        FieldError("checkpoint.optimizer", Quoted(manifest.optimizer),
                   absl::StrCat(Quoted(job.optimizer), ", as configured")));
  } else if (manifest.num_state_arrays != job.num_state_arrays) {
    // One optimizer keeps more arrays with momentum than without.
    errors.Add(FieldError(
        "checkpoint.state_arrays", absl::StrCat(manifest.num_state_arrays),
        absl::StrCat(job.num_state_arrays, ", as configured")));
  }
  if (job.tensors != nullptr) {
    errors.Add(CompareManifests(*job.tensors, manifest.tensors));
  }
  return errors.status();
}

namespace {

// Before the checksum's digits; after them comes kEnd.
constexpr absl::string_view kCrcMember = ", \"crc32c\": ";
constexpr absl::string_view kEnd = "}\n";

template <typename V>
void MemberFields(V* v, CheckpointMember* member) {
  v->Field("rank", &member->rank);
  v->Field("session", &member->session);
  v->Field("first_round", &member->first_round);
  v->Field("client", &member->client);
  if (v->There("identity", !member->identity.empty())) {
    v->Field("identity", &member->identity);
  }
}

constexpr auto kManifest = [](auto* v, CheckpointManifest* manifest) {
  v->Field("job", &manifest->job);
  v->Field("version", &manifest->id.version);
  v->Field("made", &manifest->id.made);
  v->Field("history", &manifest->history);
  v->Field("shards", &manifest->num_shards);
  v->List("tensors", &manifest->tensors.tensors,
          [](auto* v, TensorSpec* tensor) {
            v->Field("name", &tensor->name);
            v->Field("shape", &tensor->shape);
            v->Field("group", &tensor->group);
            v->Field("optional", &tensor->optional);
          });
  v->Field("optimizer", &manifest->optimizer);
  v->Field("state_arrays", &manifest->num_state_arrays);
  v->List("parts", &manifest->parts, [](auto* v, CheckpointPart* part) {
    v->Field("file", &part->file);
    v->Field("bytes", &part->num_bytes);
    v->Field("crc32c", &part->crc32c);
  });
  v->List("members", &manifest->members,
          [](auto* v, CheckpointMember* member) { MemberFields(v, member); });
  v->Bytes("record", &manifest->record);
  v->Bytes("facts", &manifest->facts);
  v->Field("config", &manifest->config);
};

// The text without its checksum, as an object of its own; DATA_LOSS.
absl::StatusOr<std::string> CheckedObject(absl::string_view text) {
  const size_t comma = text.rfind(kCrcMember);
  uint32_t crc = 0;
  if (comma == absl::string_view::npos || !absl::ConsumeSuffix(&text, kEnd) ||
      !absl::SimpleAtoi(text.substr(comma + kCrcMember.size()), &crc)) {
    return absl::DataLossError("its end with the checksum is missing");
  }
  const absl::string_view checked = text.substr(0, comma);
  if (Crc32c(checked) != crc ||
      absl::StrCat(crc) != text.substr(comma + kCrcMember.size())) {
    return absl::DataLossError(
        absl::StrCat("its CRC32C is ", Crc32c(checked), ", not ",
                     text.substr(comma + kCrcMember.size(), 20)));
  }
  return absl::StrCat(checked, "}");
}

}  // namespace

std::string CheckpointManifestJson(const CheckpointManifest& manifest) {
  Json json{{"format", kCheckpointFormat}};
  json.update(JsonOf(manifest, kManifest));
  const std::string line = JsonLine(json);
  const absl::string_view checked =
      absl::StripSuffix(absl::string_view(line), "}");
  return absl::StrCat(checked, kCrcMember, Crc32c(checked), kEnd);
}

absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(
    absl::string_view text) {
  AGG_ASSIGN_OR_RETURN(const std::string object, CheckedObject(text));
  const Json json = Json::parse(object, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is no JSON object");
  FieldErrors errors;
  const JsonMembers members(json, "", &errors);
  uint32_t format = 0;
  members.TakeInteger("format", &format);
  if (errors.empty() && format != kCheckpointFormat) {
    return absl::UnimplementedError(
        absl::StrCat("format is ", format, "; allowed: ", kCheckpointFormat));
  }
  CheckpointManifest manifest;
  JsonReader reader(&members);
  kManifest(&reader, &manifest);
  if (errors.empty()) errors.Add(ValidateCheckpointManifest(manifest));
  if (!errors.empty()) return errors.status();
  return manifest;
}

}  // namespace agg
