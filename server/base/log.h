// Log lines on stderr: "2026-11-20T08:00:00.123Z I shard0] message".
#ifndef AGG_SERVER_BASE_LOG_H_
#define AGG_SERVER_BASE_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Process-wide, thread-safe. Lines below the level are dropped; `who` stands
// in each line ("shard0"). Default: kInfo and no name.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();
void SetLogName(absl::string_view who);

// "debug", "info", "warning", "error"; false for any other name.
absl::string_view LogLevelName(LogLevel level);
bool ParseLogLevel(absl::string_view name, LogLevel* level);

// Writes one line in one call. What cannot be printed is escaped ("\n",
// "\x1b"), and a message over 8 KiB is cut: messages quote what peers have
// sent.
void LogLine(LogLevel level, absl::string_view message);

template <typename... Args>
void LogInfo(const Args&... args) {
  LogLine(LogLevel::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(const Args&... args) {
  LogLine(LogLevel::kWarning, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const Args&... args) {
  LogLine(LogLevel::kError, absl::StrCat(args...));
}

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOG_H_
