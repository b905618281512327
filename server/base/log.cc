// One write per line, so that lines of threads do not mix.
#include "server/base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

std::atomic<int> log_level{static_cast<int>(LogLevel::kInfo)};
Mutex name_mutex;
constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

std::string& Name() {
  static std::string* const name = new std::string;
  return *name;
}

}  // namespace

void SetLogLevel(LogLevel level) { log_level = static_cast<int>(level); }

LogLevel GetLogLevel() { return static_cast<LogLevel>(log_level.load()); }

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

void SetLogName(absl::string_view who) {
  MutexLock lock(&name_mutex);
  Name() = std::string(who);
}

void LogLine(LogLevel level, absl::string_view message) {
  if (static_cast<int>(level) < log_level.load()) return;
  std::string who;
  {
    MutexLock lock(&name_mutex);
    who = Name();
  }
  const char letter = "DIWE"[static_cast<int>(level)];
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                    absl::UTCTimeZone()),
                   " ", absl::string_view(&letter, 1), " ", who, "] ",
                   absl::StrReplaceAll(message, {{"\n", "\\n"}}), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace agg
