// One line of a log as a value, and its two forms: text for people, JSON for
// programs.
#ifndef AGG_SERVER_BASE_LOG_RECORD_H_
#define AGG_SERVER_BASE_LOG_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// "debug", "info", "warning", "error"; false for any other name.
absl::string_view LogLevelName(LogLevel level);
bool ParseLogLevel(absl::string_view name, LogLevel* level);

enum class LogFormat { kText = 0, kJson = 1 };

// "text", "json"; false for any other name.
bool ParseLogFormat(absl::string_view name, LogFormat* format);

struct LogRecord {
  // One above kError is written whatever the level is, and is information.
  LogLevel level = LogLevel::kInfo;
  std::string message;    // as it was given, whatever bytes it has
  const char* file = "";  // where it was logged; a literal
  int line = 0;
  uint64_t num_held_back = 0;  // of its reason, before it (line_limits.h)
};

// What all lines of a process have in common.
struct LogOwner {
  LogFormat format = LogFormat::kText;
  std::string name;  // "shard0"; in texts alone
  std::string job;   // "": not known yet, and then shard means nothing
  int shard = 0;     // ordinal
};

// The record as one line with its newline. What cannot be printed is escaped,
// in either form, and a message over 8 KiB is cut: messages quote what peers
// have sent.
//
//   2026-11-20T08:00:00.123Z W shard0] message (59 more like it held back)
//   {"time": "2026-11-20T08:00:00.123Z", "severity": "WARNING", "message":
//   "..",
//    "job": "default", "shard": 0, "file": "server/server.cc", "line": 74,
//    "held_back": 59}                    (as one line)
std::string FormatRecord(const LogRecord& record, const LogOwner& owner,
                         absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOG_RECORD_H_
