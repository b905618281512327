#include "server/config/config_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// Collects what the parser finds wrong; its lines and columns count from 0.
class ErrorList : public google::protobuf::io::ErrorCollector {
 public:
  explicit ErrorList(absl::string_view source) : source_(source) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    errors_.push_back(line < 0 ? absl::StrCat(source_, ": ", message)
                               : absl::StrCat(source_, ":", line + 1, ":",
                                              column + 1, ": ", message));
  }
  std::string Join() const { return absl::StrJoin(errors_, "\n"); }

 private:
  const absl::string_view source_;
  std::vector<std::string> errors_;
};

void Print(const Message& message, int indent, std::string* out);

// `index`: which element of a repeated field; -1 for a singular one.
void PrintField(const Message& message, const FieldDescriptor* field, int index,
                int indent, std::string* out) {
  absl::StrAppend(out, std::string(indent, ' '), field->name());
  if (field->type() != FieldDescriptor::TYPE_MESSAGE) {
    std::string value;
    TextFormat::PrintFieldValueToString(message, field, index, &value);
    absl::StrAppend(out, ": ", value, "\n");
    return;
  }
  const auto* reflection = message.GetReflection();
  const Message& inner =
      index < 0 ? reflection->GetMessage(message, field)
                : reflection->GetRepeatedMessage(message, field, index);
  absl::StrAppend(out, " {\n");
  Print(inner, indent + 2, out);
  absl::StrAppend(out, std::string(indent, ' '), "}\n");
}

void Print(const Message& message, int indent, std::string* out) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      const int count = reflection->FieldSize(message, field);
      for (int k = 0; k < count; ++k) {
        PrintField(message, field, k, indent, out);
      }
    } else if (!field->has_presence() || reflection->HasField(message, field)) {
      PrintField(message, field, -1, indent, out);
    }
  }
}

}  // namespace

absl::StatusOr<v1::JobConfig> ParseJobConfig(absl::string_view text,
                                             absl::string_view source) {
  ErrorList errors(source);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  v1::JobConfig config;
  if (!parser.ParseFromString(std::string(text), &config)) {
    return absl::InvalidArgumentError(errors.Join());
  }
  return config;
}

std::string PrintJobConfig(const v1::JobConfig& config) {
  std::string text;
  Print(config, 0, &text);
  return text;
}

std::string ConfigFingerprint(const v1::JobConfig& config) {
  v1::JobConfig shared = config;
  shared.clear_shards();
  shared.clear_metrics();
  shared.clear_round_log();
  shared.clear_compute_threads();
  shared.clear_memory_budget_bytes();
  shared.clear_device_memory_budget_bytes();
  // FNV-1a, 64 bits: gives the same on every platform. It finds mistakes; it
  // does not protect against malice.
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : PrintJobConfig(shared)) {
    hash = (hash ^ c) * 0x100000001b3u;
  }
  return absl::StrFormat("%016x", hash);
}

}  // namespace agg
