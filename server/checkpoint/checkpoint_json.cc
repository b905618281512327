// manifest.json, written and read member by member: a file from elsewhere may
// say anything, so each member has a type and a range here.
#include "server/checkpoint/checkpoint_json.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/crc32c.h"
#include "server/base/field_error.h"
#include "server/base/json.h"

namespace agg {
namespace {

// Before the checksum's digits; after them comes kEnd.
constexpr absl::string_view kCrcMember = ", \"crc32c\": ";
constexpr absl::string_view kEnd = "}\n";

Json TensorJson(const TensorSpec& tensor) {
  return Json{{"name", tensor.name},
              {"shape", Json(tensor.shape)},
              {"group", tensor.group},
              {"optional", tensor.optional}};
}

Json PartJson(const CheckpointPart& part) {
  return Json{
      {"file", part.file}, {"bytes", part.num_bytes}, {"crc32c", part.crc32c}};
}

Json MemberJson(const CheckpointMember& member) {
  return Json{{"rank", member.rank},
              {"session", member.session},
              {"first_round", member.first_round},
              {"client", member.client}};
}

template <typename T>
Json ListJson(const std::vector<T>& values, Json (*to_json)(const T&)) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

// Reads the members of one JSON object and collects what is wrong with them.
// `path`: of the object in the file, "" or "parts[2].".
class Members {
 public:
  Members(const Json& object, std::string path, FieldErrors* errors)
      : object_(object), path_(std::move(path)), errors_(errors) {}

  void Take(const char* name, std::string* text) {
    const Json* const value = Find(name, &Json::is_string, "a text");
    if (value != nullptr) *text = value->get<std::string>();
  }
  void Take(const char* name, bool* truth) {
    const Json* const value = Find(name, &Json::is_boolean, "true or false");
    if (value != nullptr) *truth = value->get<bool>();
  }
  // Integers of any width, from 0 on.
  template <typename T>
  void TakeNumber(const char* name, T* number) {
    const uint64_t most = static_cast<uint64_t>(std::numeric_limits<T>::max());
    const Json* const value =
        Find(name, &Json::is_number_unsigned, "an integer, 0 or more");
    if (value == nullptr) return;
    const auto wide = value->get<uint64_t>();
    if (wide > most) {
      Add(name, absl::StrCat(wide), absl::StrCat("at most ", most));
    } else {
      *number = static_cast<T>(wide);
    }
  }
  void TakeBytes(const char* name, std::string* bytes) {
    std::string text;
    Take(name, &text);
    if (!absl::Base64Unescape(text, bytes)) {
      Add(name, Quoted(text.substr(0, 20)), "base64");
    }
  }
  void TakeShape(const char* name, std::vector<int64_t>* shape) {
    const Json* const list = Find(name, &Json::is_array, "a list of sizes");
    if (list == nullptr) return;
    for (const Json& size : *list) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{1}
                                                                   << 40) {
        return Add(name, JsonLine(*list), "a list of sizes up to 2^40");
      }
      shape->push_back(size.get<int64_t>());
    }
  }
  // A list of objects, each read by `read`.
  template <typename T>
  void TakeList(const char* name, std::vector<T>* values,
                T (*read)(Members members)) {
    const Json* const list = Find(name, &Json::is_array, "a list");
    if (list == nullptr) return;
    for (size_t i = 0; i < list->size() && errors_->empty(); ++i) {
      const std::string path = absl::StrCat(path_, name, "[", i, "]");
      const Json& object = (*list)[i];
      if (!object.is_object()) {
        errors_->Add(FieldError(path, JsonLine(object), "an object"));
        return;
      }
      values->push_back(read(Members(object, path + ".", errors_)));
    }
  }

 private:
  void Add(const char* name, absl::string_view value,
           absl::string_view allowed) {
    errors_->Add(FieldError(path_ + name, value, allowed));
  }

  // The member, or null and an error.
  const Json* Find(const char* name, bool (Json::*is_type)() const noexcept,
                   absl::string_view allowed) {
    const auto found = object_.find(name);
    if (found == object_.end()) {
      Add(name, "missing", allowed);
      return nullptr;
    }
    if (!((*found).*is_type)()) {
      Add(name, JsonLine(*found).substr(0, 60), allowed);
      return nullptr;
    }
    return &*found;
  }

  const Json& object_;
  const std::string path_;
  FieldErrors* const errors_;
};

TensorSpec ReadTensor(Members members) {
  TensorSpec tensor;
  members.Take("name", &tensor.name);
  members.TakeShape("shape", &tensor.shape);
  members.Take("group", &tensor.group);
  members.Take("optional", &tensor.optional);
  return tensor;
}

CheckpointPart ReadPart(Members members) {
  CheckpointPart part;
  members.Take("file", &part.file);
  members.TakeNumber("bytes", &part.num_bytes);
  members.TakeNumber("crc32c", &part.crc32c);
  return part;
}

CheckpointMember ReadMember(Members members) {
  CheckpointMember member;
  members.TakeNumber("rank", &member.rank);
  members.TakeNumber("session", &member.session);
  members.TakeNumber("first_round", &member.first_round);
  members.Take("client", &member.client);
  return member;
}

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

CheckpointManifest ReadManifest(Members members) {
  CheckpointManifest manifest;
  members.Take("job", &manifest.job);
  members.TakeNumber("version", &manifest.id.version);
  members.TakeNumber("made", &manifest.id.made);
  members.TakeNumber("history", &manifest.history);
  members.TakeNumber("shards", &manifest.num_shards);
  members.TakeList("tensors", &manifest.tensors.tensors, ReadTensor);
  members.Take("optimizer", &manifest.optimizer);
  members.TakeNumber("state_arrays", &manifest.num_state_arrays);
  members.TakeList("parts", &manifest.parts, ReadPart);
  members.TakeList("members", &manifest.members, ReadMember);
  members.TakeBytes("record", &manifest.record);
  members.TakeBytes("facts", &manifest.facts);
  members.Take("config", &manifest.config);
  return manifest;
}

}  // namespace

std::string CheckpointManifestJson(const CheckpointManifest& manifest) {
  const Json json{
      {"format", kCheckpointFormat},
      {"job", manifest.job},
      {"version", manifest.id.version},
      {"made", manifest.id.made},
      {"history", manifest.history},
      {"shards", manifest.num_shards},
      {"tensors", ListJson(manifest.tensors.tensors, TensorJson)},
      {"optimizer", manifest.optimizer},
      {"state_arrays", manifest.num_state_arrays},
      {"parts", ListJson(manifest.parts, PartJson)},
      {"members", ListJson(manifest.members, MemberJson)},
      {"record", absl::Base64Escape(manifest.record)},
      {"facts", absl::Base64Escape(manifest.facts)},
      {"config", manifest.config},
  };
  const std::string line = JsonLine(json);
  const absl::string_view checked =
      absl::StripSuffix(absl::string_view(line), "}");
  return absl::StrCat(checked, kCrcMember, Crc32c(checked), kEnd);
}

absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(
    absl::string_view text) {
  const absl::StatusOr<std::string> object = CheckedObject(text);
  if (!object.ok()) return object.status();
  const Json json = Json::parse(*object, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is no JSON object");
  FieldErrors errors;
  Members members(json, "", &errors);
  uint32_t format = 0;
  members.TakeNumber("format", &format);
  if (errors.empty() && format != kCheckpointFormat) {
    return absl::UnimplementedError(
        absl::StrCat("format is ", format, "; allowed: ", kCheckpointFormat));
  }
  CheckpointManifest manifest = ReadManifest(members);
  if (errors.empty()) errors.Add(ValidateCheckpointManifest(manifest));
  if (!errors.empty()) return errors.status();
  return manifest;
}

}  // namespace agg
