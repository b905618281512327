// The printer is written by hand: protobuf's leaves out fields that have
// their default, and people want to see those.
#include "server/config/config_text.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"

namespace agg {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// Collects what the parser finds wrong; its lines and columns count from 0.
// Unknown fields are its warnings, so that it goes on behind them.
class ErrorList : public google::protobuf::io::ErrorCollector {
 public:
  ErrorList(absl::string_view source, FieldErrors* errors,
            FieldErrors* unknown_fields)
      : source_(source), errors_(errors), unknown_fields_(unknown_fields) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    errors_->Add(At(line, column, message));
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    unknown_fields_->Add(At(line, column, message));
  }

 private:
  absl::Status At(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) const {
    return absl::InvalidArgumentError(
        line < 0 ? absl::StrCat(source_, ": ", message)
                 : absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ",
                                message));
  }

  const absl::string_view source_;
  FieldErrors* const errors_;
  FieldErrors* const unknown_fields_;
};

// Calls `visit` with each field that is printed, and which element of it: -1
// for a singular one.
template <typename Visit>
void ForEachField(const Message& message, const Visit& visit) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      const int count = reflection->FieldSize(message, field);
      for (int k = 0; k < count; ++k) visit(field, k);
    } else if (!field->has_presence() || reflection->HasField(message, field)) {
      visit(field, -1);
    }
  }
}

void Clear(absl::string_view name, Message* message) {
  const FieldDescriptor* const field =
      message->GetDescriptor()->FindFieldByName(std::string(name));
  AGG_DCHECK(field != nullptr);
  message->GetReflection()->ClearField(message, field);
}

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
  ForEachField(message, [&](const FieldDescriptor* field, int index) {
    PrintField(message, field, index, indent, out);
  });
}

}  // namespace

absl::StatusOr<v1::JobConfig> ParseJobConfig(absl::string_view text,
                                             absl::string_view source,
                                             FieldErrors* unknown_fields) {
  FieldErrors errors;
  ErrorList list(source, &errors,
                 unknown_fields == nullptr ? &errors : unknown_fields);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&list);
  parser.AllowUnknownField(true);
  v1::JobConfig config;
  const bool parsed = parser.ParseFromString(std::string(text), &config);
  if (!parsed || !errors.empty()) return errors.status();
  return config;
}

std::string PrintJobConfig(const v1::JobConfig& config) {
  std::string text;
  Print(config, 0, &text);
  return text;
}

namespace {

// Fields that may differ from host to host, or are the coordinator's alone.
// checkpoint: each shard's own volume; when and how many is the coordinator's
// alone, and a restart with another `restore` must not be a restart of all.
constexpr absl::string_view kOwnFields[] = {"shards",
                                            "metrics",
                                            "round_log",
                                            "checkpoint",
                                            "device",
                                            "compute_threads",
                                            "unix_socket",
                                            "shared_memory",
                                            "security",
                                            "memory_budget_bytes",
                                            "device_memory_budget_bytes"};

// Of `security` who may do what is the same everywhere. Files are each host's
// own, and shards that speak TLS cannot talk to others at all.
constexpr absl::string_view kIdentities = "security.identities[";
constexpr absl::string_view kOwnIdentityFields[] = {"token_file", "limits"};

bool IsCompared(absl::string_view path) {
  if (absl::StartsWith(path, kIdentities)) {
    absl::string_view field = path.substr(path.find(']') + 1);
    field.remove_prefix(1);  // the dot
    return std::none_of(
        std::begin(kOwnIdentityFields), std::end(kOwnIdentityFields),
        [&](absl::string_view own) { return absl::StartsWith(field, own); });
  }
  const absl::string_view first = path.substr(0, path.find_first_of(".["));
  return std::count(std::begin(kOwnFields), std::end(kOwnFields), first) == 0;
}

void Collect(const Message& message, const std::string& prefix,
             std::vector<FieldValue>* out);

void CollectField(const Message& message, const FieldDescriptor* field,
                  int index, const std::string& path,
                  std::vector<FieldValue>* out) {
  if (field->type() != FieldDescriptor::TYPE_MESSAGE) {
    FieldValue value;
    value.path = path;
    TextFormat::PrintFieldValueToString(message, field, index, &value.value);
    value.compared = IsCompared(path);
    out->push_back(std::move(value));
    return;
  }
  const auto* reflection = message.GetReflection();
  Collect(index < 0 ? reflection->GetMessage(message, field)
                    : reflection->GetRepeatedMessage(message, field, index),
          absl::StrCat(path, "."), out);
}

void Collect(const Message& message, const std::string& prefix,
             std::vector<FieldValue>* out) {
  ForEachField(message, [&](const FieldDescriptor* field, int index) {
    CollectField(message, field, index,
                 absl::StrCat(prefix, field->name(),
                              index < 0 ? "" : absl::StrCat("[", index, "]")),
                 out);
  });
}

void KeepIdentities(const v1::JobConfig& config, v1::JobConfig* shared) {
  for (const v1::IdentityConfig& identity : config.security().identities()) {
    v1::IdentityConfig* const kept =
        shared->mutable_security()->add_identities();
    *kept = identity;
    for (absl::string_view name : kOwnIdentityFields) Clear(name, kept);
  }
}

}  // namespace

std::vector<FieldValue> FieldValues(const v1::JobConfig& config) {
  std::vector<FieldValue> values;
  Collect(config, "", &values);
  return values;
}

std::string ConfigFingerprint(const v1::JobConfig& config) {
  AGG_DCHECK(!config.publish().empty());
  v1::JobConfig shared = config;
  for (absl::string_view name : kOwnFields) Clear(name, &shared);
  KeepIdentities(config, &shared);
  // FNV-1a, 64 bits: gives the same on every platform. It finds mistakes; it
  // does not protect against malice.
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : PrintJobConfig(shared)) {
    hash = (hash ^ c) * 0x100000001b3u;
  }
  return absl::StrFormat("%016x", hash);
}

namespace {

// Far more than 1024 shards and all groups need. Without an end, /dev/zero
// would be read until the memory is full.
constexpr size_t kMaxConfigBytes = size_t{16} << 20;

absl::Status Refuse(const std::string& path, absl::string_view what) {
  return FieldError("--config", absl::StrCat(Quoted(path), " (", what, ")"),
                    "a file with the job's configuration, or - for standard "
                    "input");
}

// Reads to the end, or one byte more than is allowed. False: see errno.
bool ReadAll(int fd, std::string* text) {
  char buffer[65536];
  while (text->size() <= kMaxConfigBytes) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    text->append(buffer, static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  const bool is_stdin = path == "-";
  const int fd =
      is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Refuse(path, std::strerror(errno));
  std::string text;
  struct stat info;
  const bool is_folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  const bool read = !is_folder && ReadAll(fd, &text);
  const int error = errno;
  if (!is_stdin) close(fd);
  if (is_folder) return Refuse(path, "a folder");
  if (!read) return Refuse(path, std::strerror(error));
  if (text.size() > kMaxConfigBytes) {
    return Refuse(path, absl::StrCat("more than ", kMaxConfigBytes, " bytes"));
  }
  if (absl::StripAsciiWhitespace(text).empty()) {
    return Refuse(path,
                  "empty; the smallest configuration is `workers: 1 "
                  "learning_rate { rate: 0.1 }`");
  }
  return text;
}

}  // namespace agg
