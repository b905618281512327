#include "server/base/log_record.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"

namespace agg {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};
// As Cloud Logging, systemd's tools and most collectors have them; the last one
// is above all levels that can be set.
constexpr const char* kSeverities[] = {"DEBUG", "INFO", "WARNING", "ERROR",
                                       "INFO"};
constexpr char kLetters[] = "DIWEI";
// Bytes of a message that are written, at most (a little more by escapes).
constexpr size_t kMaxMessageBytes = 8192;

// What is written of `message`: it is cut before it is escaped, where a
// character begins. `*note` says so.
absl::string_view Head(absl::string_view message, std::string* note) {
  const size_t num_bytes = message.size();
  if (num_bytes <= kMaxMessageBytes) return message;
  size_t end = kMaxMessageBytes;
  while (end > kMaxMessageBytes - 4 && (message[end] & 0xc0) == 0x80) --end;
  *note = absl::StrCat(" [cut: ", num_bytes, " bytes]");
  return message.substr(0, end);
}

// Not json.h: each client links the log, and no other JSON.
std::string JsonString(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : ValidUtf8(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&quoted, "\\u00", absl::Hex(c, absl::kZeroPad2));
    } else {
      quoted += c;
    }
  }
  return ShownInJson(quoted + '"');
}

std::string JsonRecord(const LogRecord& record, const LogOwner& owner,
                       const std::string& time) {
  std::string note;
  const absl::string_view head = Head(record.message, &note);
  const char* severity = kSeverities[static_cast<int>(record.level)];
  std::string line = absl::StrCat(
      "{\"time\": ", JsonString(time), ", \"severity\": ", JsonString(severity),
      ", \"message\": ", JsonString(absl::StrCat(head, note)));
  if (!owner.job.empty()) {
    absl::StrAppend(&line, ", \"job\": ", JsonString(owner.job),
                    ", \"shard\": ", owner.shard);
  }
  absl::StrAppend(&line, ", \"file\": ", JsonString(record.file),
                  ", \"line\": ", record.line);
  if (record.num_held_back > 0) {
    absl::StrAppend(&line, ", \"held_back\": ", record.num_held_back);
  }
  return absl::StrCat(line, "}\n");
}

std::string TextRecord(const LogRecord& record, const LogOwner& owner,
                       const std::string& time) {
  std::string note;
  const absl::string_view head = Head(record.message, &note);
  if (record.num_held_back > 0) {
    absl::StrAppend(&note, " (", record.num_held_back,
                    " more like it held back)");
  }
  const char letter = kLetters[static_cast<int>(record.level)];
  return absl::StrCat(time, " ", absl::string_view(&letter, 1), " ", owner.name,
                      "] ", Shown(head), note, "\n");
}

}  // namespace

absl::string_view LogLevelName(LogLevel level) {
  return kLevelNames[static_cast<int>(level)];
}

bool ParseLogLevel(absl::string_view name, LogLevel* level) {
  for (int i = 0; i < 4; ++i) {
    if (name != kLevelNames[i]) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

bool ParseLogFormat(absl::string_view name, LogFormat* format) {
  if (name != "text" && name != "json") return false;
  *format = name == "json" ? LogFormat::kJson : LogFormat::kText;
  return true;
}

std::string FormatRecord(const LogRecord& record, const LogOwner& owner,
                         absl::Time now) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone());
  return owner.format == LogFormat::kJson ? JsonRecord(record, owner, time)
                                          : TextRecord(record, owner, time);
}

}  // namespace agg
