// One write per line, so that lines of threads do not mix. In a process that
// has StartLogWriter a LineWriter writes, for good: threads log until the end.
#include "server/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/line_writer.h"
#include "server/base/log_writer.h"
#include "server/base/mutex.h"
#include "server/base/utf8.h"

namespace agg {
namespace {

std::atomic<LineWriter*> writer{nullptr};  // null: lines are written at once
std::atomic<int> log_level{static_cast<int>(LogLevel::kInfo)};
Mutex name_mutex;
// Bytes of a message that are written, at most (a little more by escapes).
constexpr size_t kMaxMessageBytes = 8192;
constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

std::string& Name() {
  static std::string* const name = new std::string;
  return *name;
}

// `message` as one line of bounded length that a terminal can show. It is cut
// before it is escaped, where a character begins.
std::string OneLine(absl::string_view message) {
  const size_t num_bytes = message.size();
  if (num_bytes <= kMaxMessageBytes) return Shown(message);
  size_t end = kMaxMessageBytes;
  while (end > kMaxMessageBytes - 4 && (message[end] & 0xc0) == 0x80) --end;
  return absl::StrCat(Shown(message.substr(0, end)), " [cut: ", num_bytes,
                      " bytes]");
}

std::string Line(LogLevel level, absl::string_view message) {
  std::string who;
  {
    MutexLock lock(&name_mutex);
    who = Name();
  }
  // The last one: a level above all that can be set (audit_trail.cc).
  const char letter = "DIWEI"[static_cast<int>(level)];
  return absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                       absl::UTCTimeZone()),
                      " ", absl::string_view(&letter, 1), " ", who, "] ",
                      OneLine(message), "\n");
}

}  // namespace

void StartLogWriter() {
  if (writer.load() != nullptr) return;
  const auto notice = [](uint64_t num_dropped) {
    return Line(LogLevel::kWarning,
                absl::StrCat(num_dropped,
                             " lines of the log are missing here: nobody had "
                             "read stderr"));
  };
  try {
    writer = new LineWriter(STDERR_FILENO, notice);
  } catch (const std::system_error&) {
    // Then lines are written as in other processes.
  }
}

void WriteToStderr(absl::string_view line) {
  LineWriter* const to = writer.load();
  if (to != nullptr) {
    to->Write(line);
  } else {
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

bool FlushLog(absl::Duration limit) {
  LineWriter* const to = writer.load();
  return to == nullptr || to->Flush(limit);
}

void FlushLogAtCrash() {
  LineWriter* const to = writer.load();
  if (to != nullptr) to->FlushAtCrash(absl::Seconds(1));
}

uint64_t DroppedLogLines() {
  const LineWriter* const to = writer.load();
  return to == nullptr ? 0 : to->num_dropped();
}

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
  WriteToStderr(Line(level, message));
}

}  // namespace agg
