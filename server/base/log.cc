// One write per line, so that lines of threads do not mix. In a process that
// has StartLogWriter a LineWriter writes, for good: threads log until the end.
//
// Its thread asks before it writes (poll), and writes no more than a pipe that
// is ready takes at once (PIPE_BUF): so it never waits in write, and ends when
// it is told to. O_NONBLOCK would be set for all processes that share the
// descriptor.
#include "server/base/log.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/line_limits.h"
#include "server/base/log_record.h"
#include "server/base/mutex.h"

namespace agg {

namespace {

std::atomic<LineWriter*> writer{nullptr};  // null: lines are written at once
std::atomic<int> log_level{static_cast<int>(LogLevel::kInfo)};
std::atomic<LogFormat> log_format{LogFormat::kText};

// Whoever runs out of memory ends the process by a line of the log, and keeps
// the locks that it has: nobody allocates with `mutex` held.
struct SharedOwner {
  Mutex changing;  // held by one who makes the next value
  Mutex mutex;
  std::shared_ptr<const LogOwner> value ABSL_GUARDED_BY(mutex) =
      std::make_shared<LogOwner>();
};

SharedOwner& Shared() {
  static SharedOwner* const shared = new SharedOwner;
  return *shared;
}

std::shared_ptr<const LogOwner> Owner() {
  SharedOwner& shared = Shared();
  MutexLock lock(&shared.mutex);
  return shared.value;
}

template <typename Change>
void ChangeOwner(const Change& change) {
  SharedOwner& shared = Shared();
  MutexLock changing(&shared.changing);
  auto changed = std::make_shared<LogOwner>(*Owner());
  change(changed.get());
  std::shared_ptr<const LogOwner> next = std::move(changed);
  MutexLock lock(&shared.mutex);
  shared.value.swap(next);
}

std::string Line(const LogRecord& record, absl::Time said) {
  return FormatRecord(record, *Owner(), said);
}

bool IsBelowLevel(LogLevel level) {
  return static_cast<int>(level) < log_level.load();
}

// Lines that are held back; null: none are.
struct Limits {
  Mutex mutex;
  LineLimits lines ABSL_GUARDED_BY(mutex);
};
std::atomic<Limits*> limits{nullptr};

void Write(const std::vector<HeldLine>& lines) {
  for (const HeldLine& line : lines) {
    WriteToStderr(Line(line.record, line.said));
  }
}

// Not for longer than `limit`: who ends the process may have been stopped in
// the midst of a line.
void WriteHeldLines(absl::Duration limit) {
  Limits* const held = limits.load();
  if (held == nullptr) return;
  const absl::Time deadline = Clock::Real()->Now() + limit;
  while (!held->mutex.TryLock()) {
    if (Clock::Real()->Now() >= deadline) return;
    std::this_thread::yield();
  }
  const std::vector<HeldLine> lines =
      held->lines.TakeDue(absl::InfiniteFuture());
  held->mutex.Unlock();
  Write(lines);
}

}  // namespace

void StartLogWriter() {
  if (writer.load() != nullptr) return;
  const auto notice = [](uint64_t num_dropped) {
    LogRecord record;
    record.level = LogLevel::kWarning;
    record.message =
        absl::StrCat(num_dropped,
                     " lines of the log are missing here: nobody had read "
                     "stderr");
    record.file = __FILE__;
    record.line = __LINE__;
    return Line(record, absl::Now());
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
  WriteHeldLines(limit);
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

void SetLogName(absl::string_view who) {
  ChangeOwner([&](LogOwner* owner) { owner->name = std::string(who); });
}

void SetLogFormat(LogFormat format) {
  ChangeOwner([&](LogOwner* owner) { owner->format = format; });
  log_format = format;
}

LogFormat GetLogFormat() { return log_format.load(); }

void SetLogJob(absl::string_view job, int shard) {
  ChangeOwner([&](LogOwner* owner) {
    owner->job = std::string(job);
    owner->shard = shard;
  });
}

void LogLine(LogLevel level, const LogPiece& first, absl::string_view rest) {
  if (IsBelowLevel(level)) return;
  LogRecord record;
  record.level = level;
  record.message = absl::StrCat(first.text(), rest);
  record.file = first.file();
  record.line = first.line();
  WriteToStderr(Line(record, absl::Now()));
}

void LogLineOf(LogLevel level, const LogPiece& reason,
               absl::string_view message) {
  if (IsBelowLevel(level)) return;
  LogRecord record;
  record.level = level;
  record.message = std::string(message);
  record.file = reason.file();
  record.line = reason.line();
  const absl::Time said = absl::Now();
  Limits* const held = limits.load();
  if (held != nullptr) {
    MutexLock lock(&held->mutex);
    const absl::Time now = Clock::Real()->Now();
    if (!held->lines.Take(reason.text(), &record, now, said)) return;
  }
  WriteToStderr(Line(record, said));
}

void LimitLogLines() {
  if (limits.load() == nullptr) limits = new Limits;
}

void WriteDueLines() {
  Limits* const held = limits.load();
  if (held == nullptr) return;
  std::vector<HeldLine> due;
  {
    MutexLock lock(&held->mutex);
    due = held->lines.TakeDue(Clock::Real()->Now());
  }
  Write(due);
}

uint64_t HeldBackLogLines() {
  Limits* const held = limits.load();
  if (held == nullptr) return 0;
  MutexLock lock(&held->mutex);
  return held->lines.num_dropped();
}

namespace {

constexpr size_t kPiece = PIPE_BUF;
constexpr int kPollMilliseconds = 50;

// Whether something may be written now, or an error would say why not.
bool IsReady(int fd, int milliseconds) {
  pollfd descriptor = {fd, POLLOUT, 0};
  return poll(&descriptor, 1, milliseconds) > 0;
}

// Bytes that have gone; 0: none now; below 0: nobody will ever read.
ssize_t WriteSome(int fd, const char* bytes, size_t size) {
  const ssize_t count = write(fd, bytes, size);
  if (count >= 0) return count;
  return errno == EINTR || errno == EAGAIN ? 0 : -1;
}

// Whoever waits for a signal is another thread, perhaps one that begins later:
// this one must not be who gets it. What it causes itself it gets.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      sigdelset(&all, number);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

LineWriter::LineWriter(int fd, Notice notice, size_t max_bytes)
    : fd_(fd), notice_(std::move(notice)), ring_(max_bytes) {
  const SignalsBlocked blocked;  // as the thread begins, so it stays
  thread_ = std::thread([this] { Work(); });
}

LineWriter::~LineWriter() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool LineWriter::Fits(size_t num_bytes) const {
  return queued_ - written_ + num_bytes <= ring_.size();
}

void LineWriter::Append(absl::string_view bytes) {
  const size_t begin = queued_ % ring_.size();
  const size_t first = std::min(bytes.size(), ring_.size() - begin);
  std::memcpy(ring_.data() + begin, bytes.data(), first);
  std::memcpy(ring_.data(), bytes.data() + first, bytes.size() - first);
  queued_ += bytes.size();  // behind the bytes: who crashes sees whole ones
}

void LineWriter::AddNotice(size_t num_bytes) {
  if (unsaid_ == 0) return;
  std::string notice;
  try {
    notice = notice_(unsaid_);
  } catch (const std::bad_alloc&) {
    return;  // later: the process may be about to say so, and needs the lock
  }
  if (!Fits(notice.size() + num_bytes)) return;
  Append(notice);
  unsaid_ = 0;
}

void LineWriter::Write(absl::string_view line) {
  MutexLock lock(&mutex_);
  AddNotice(line.size());
  if (unsaid_ > 0 || !Fits(line.size())) {
    ++unsaid_;
    ++num_dropped_;
    return;
  }
  Append(line);
  changed_.NotifyAll();
}

size_t LineWriter::Peek(uint64_t written, char* bytes, size_t size) const {
  size = static_cast<size_t>(
      std::min(static_cast<uint64_t>(size), queued_ - written));
  const size_t begin = written % ring_.size();
  const size_t first = std::min(size, ring_.size() - begin);
  std::memcpy(bytes, ring_.data() + begin, first);
  std::memcpy(bytes + first, ring_.data(), size - first);
  // Lines of other processes must not come into the midst of one.
  const absl::string_view piece(bytes, size);
  const size_t end = piece.rfind('\n');
  return end == absl::string_view::npos ? size : end + 1;
}

// Only from where it was read: of two who write at a crash one counts. Counted
// twice, more would be written than was queued, and the handler would go round
// the ring for ever.
void LineWriter::Advance(uint64_t written, size_t num_bytes) {
  written_.compare_exchange_strong(written, written + num_bytes);
}

void LineWriter::Work() {
  char piece[kPiece];
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (queued_ == written_) {
        AddNotice(0);
        changed_.NotifyAll();  // somebody may wait for that in Flush
      }
      while (queued_ == written_ && !stop_) changed_.Wait(&mutex_);
      if (stop_) return;
    }
    if (!IsReady(fd_, kPollMilliseconds)) continue;
    const uint64_t written = written_;
    const size_t size = Peek(written, piece, sizeof(piece));
    const ssize_t count = WriteSome(fd_, piece, size);
    MutexLock lock(&mutex_);
    if (count < 0) {
      // Nobody will ever read it.
      num_dropped_ += static_cast<uint64_t>(
          std::count(piece, piece + static_cast<ptrdiff_t>(size), '\n'));
      Advance(written, size);
    } else {
      Advance(written, static_cast<size_t>(count));
    }
  }
}

bool LineWriter::Flush(absl::Duration limit) {
  const absl::Time deadline = Clock::Real()->Now() + limit;
  MutexLock lock(&mutex_);
  while (queued_ != written_ || unsaid_ > 0) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, std::min(left, absl::Milliseconds(20)));
  }
  return true;
}

bool WriteLineIfReady(int fd, absl::string_view line) {
  while (!line.empty()) {
    if (!IsReady(fd, /*milliseconds=*/0)) return false;
    const size_t size = std::min(line.size(), kPiece);
    const ssize_t count = WriteSome(fd, line.data(), size);
    if (count <= 0) return false;
    line.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

void LineWriter::FlushAtCrash(absl::Duration limit) {
  char piece[kPiece];
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(limit));
  while (queued_ != written_) {
    if (!IsReady(fd_, milliseconds)) return;
    const uint64_t written = written_;
    const size_t size = Peek(written, piece, sizeof(piece));
    const ssize_t count = WriteSome(fd_, piece, size);
    if (count < 0) return;
    Advance(written, static_cast<size_t>(count));
  }
}

}  // namespace agg
