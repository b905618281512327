// Names of checkpoints and their files, and what has to agree within a manifest
// and between a manifest and a job. Pure.
#include "server/checkpoint/checkpoint_manifest.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/field_error.h"
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

}  // namespace agg
