// Log lines on stderr: "2026-11-20T08:00:00.123Z I shard0] message". They are
// written at once, or by a thread that nobody waits for.
#ifndef AGG_SERVER_BASE_LOG_H_
#define AGG_SERVER_BASE_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/log_record.h"
#include "server/base/mutex.h"

namespace agg {

// Process-wide, thread-safe. Lines below the level are dropped; `who` stands
// in each line of text ("shard0"). Default: kInfo and no name.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();
void SetLogName(absl::string_view who);
// Makes lines texts, or JSON (FormatRecord). Default: kText.
void SetLogFormat(LogFormat format);
LogFormat GetLogFormat();
// Sets the job and the shard's ordinal that lines of JSON have.
void SetLogJob(absl::string_view job, int shard);

// The first piece of a line, or its reason, with the place where it is logged:
// whatever absl::StrCat takes becomes one where a line is logged.
class LogPiece {
 public:
  template <typename T>
  // NOLINTNEXTLINE(google-explicit-constructor)
  LogPiece(const T& piece, const char* file = __builtin_FILE(),
           int line = __builtin_LINE())
      : LogPiece(absl::StrCat(piece), Place{file, line}) {}
  // Logged for somebody else, at that place; `file` lives for ever.
  static LogPiece At(const char* file, int line, std::string text) {
    return LogPiece(std::move(text), Place{file, line});
  }

  const std::string& text() const { return text_; }
  const char* file() const { return place_.file; }
  int line() const { return place_.line; }

 private:
  struct Place {
    const char* file;
    int line;
  };
  LogPiece(std::string text, Place place)
      : text_(std::move(text)), place_(place) {}

  std::string text_;
  Place place_;
};

// Writes one line in one call: `first` and `rest`, by FormatRecord.
void LogLine(LogLevel level, const LogPiece& first,
             absl::string_view rest = "");
void LogLineOf(LogLevel level, const LogPiece& reason,
               absl::string_view message);

template <typename... Args>
void LogInfo(const LogPiece& first, const Args&... args) {
  LogLine(LogLevel::kInfo, first, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(const LogPiece& first, const Args&... args) {
  LogLine(LogLevel::kWarning, first, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const LogPiece& first, const Args&... args) {
  LogLine(LogLevel::kError, first, absl::StrCat(args...));
}

// Write lines that a peer, a file or a round can cause again and again: of
// those with one reason one is written in a minute (LineLimits), in a process
// that limits its lines. A reason has what sets causes apart that need lines of
// their own, such as a rank. It is never shown.
template <typename... Args>
void LogInfoOf(const LogPiece& reason, const Args&... args) {
  LogLineOf(LogLevel::kInfo, reason, absl::StrCat(args...));
}
template <typename... Args>
void LogWarningOf(const LogPiece& reason, const Args&... args) {
  LogLineOf(LogLevel::kWarning, reason, absl::StrCat(args...));
}
template <typename... Args>
void LogErrorOf(const LogPiece& reason, const Args&... args) {
  LogLineOf(LogLevel::kError, reason, absl::StrCat(args...));
}

// Makes the process limit such lines until its end. For programs that serve
// others, which then call WriteDueLines each second.
void LimitLogLines();
// Writes the lines that were held back and whose time has come.
void WriteDueLines();
// Number of lines so far that were held back and will not be written.
uint64_t HeldBackLogLines();

// A queue of so many bytes and a thread that writes them to a descriptor that
// somebody else reads, or does not: a pipe that nobody empties must hold nobody
// up. What does not fit is
// dropped as a whole line and counted, and the first line that fits again comes
// behind one that says how many are missing. Thread-safe.
class LineWriter {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  // The line that says that so many were dropped, with its newline.
  using Notice = std::function<std::string(uint64_t num_dropped)>;

  // `fd` stays the caller's, and outlives it. Nothing is set on it: others may
  // share it. Throws std::system_error if there is no thread to be had.
  LineWriter(int fd, Notice notice, size_t max_bytes = kMaxBytes);
  // Gives up what is queued: call Flush first.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Queues the line, which ends with its newline. Never blocks; allocates
  // nothing but the notice.
  void Write(absl::string_view line);
  // Waits until all that was queued is written, for `limit` at most; whether it
  // is.
  bool Flush(absl::Duration limit);
  // Number of lines that were dropped so far.
  uint64_t num_dropped() const { return num_dropped_.load(); }

  // Writes what is queued from a signal's handler, whose process then ends.
  // Takes no lock; goes on until the reader has not moved for `limit`. A line
  // that the thread is about to write may come twice.
  void FlushAtCrash(absl::Duration limit);

 private:
  void Work();
  bool Fits(size_t num_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the notice behind what is queued, if one is due and fits with so many
  // bytes more.
  void AddNotice(size_t num_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The bytes behind the first `written` ones that are written next, whole
  // lines where there are any.
  size_t Peek(uint64_t written, char* bytes, size_t size) const;
  // Counts so many bytes behind the first `written` ones as written, unless
  // somebody else has said so.
  void Advance(uint64_t written, size_t num_bytes);

  const int fd_;
  const Notice notice_;
  std::vector<char> ring_;
  // Bytes ever queued, and ever written: what is between them is in the ring.
  std::atomic<uint64_t> queued_{0};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> num_dropped_{0};

  Mutex mutex_;
  CondVar changed_;
  uint64_t unsaid_ ABSL_GUARDED_BY(mutex_) =
      0;  // dropped since the last notice
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

// Writes the line at once, if whoever reads `fd` has left room for it; false:
// not, it is lost. For processes that may not have a thread for it.
bool WriteLineIfReady(int fd, absl::string_view line);

// Makes LogLine queue its lines until the process's end; a thread writes them
// to stderr (LineWriter). So a reader that is slow, or does not read, holds
// nobody up, but costs lines. Process-wide, for programs that serve others.
// Before this call, and where no thread can be had, lines are written at once.
void StartLogWriter();
// Writes a line as it is, with its newline, behind those of the log.
void WriteToStderr(absl::string_view line);
// Waits until all lines are written, those that are held back, too, for `limit`
// at most; whether they are. To be called before the process ends.
bool FlushLog(absl::Duration limit);
// Writes the queued lines from a signal's handler (LineWriter::FlushAtCrash);
// those that are held back are lost.
void FlushLogAtCrash();
// Number of lines so far that were dropped, since nobody read them.
uint64_t DroppedLogLines();

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOG_H_
