// The threads belong to nobody who waits: they share all that they use, and the
// one that is stuck ends by itself.
#include "server/base/limited_calls.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"

namespace agg {

namespace {

using Steady = std::chrono::steady_clock;  // the system's may be set back

}  // namespace

class LimitedCalls::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const std::vector<absl::Duration>& limits) {
    for (const absl::Duration limit : limits) {
      kinds_.emplace_back();
      kinds_.back().limit = limit;
    }
  }

  absl::Status Run(size_t kind, const std::string& what,
                   std::function<void()> call) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto job = std::make_shared<Job>();
    job->kind = kind;
    job->call = std::move(call);
    MutexLock lock(&mutex_);
    Kind& of = kinds_[kind];
    if (of.num_stuck > 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          "cannot ", what, ": ", of.stuck, " has not returned since ",
          absl::FormatTime("%H:%M:%S", of.stuck_since, absl::UTCTimeZone()),
          " UTC (a file system that hangs?)"));
    }
    jobs_.push_back(job);
    if (num_idle_ < static_cast<int>(jobs_.size())) {
      try {
        std::thread([self = shared_from_this()] { self->Work(); }).detach();
      } catch (const std::system_error& error) {
        jobs_.pop_back();
        return absl::ResourceExhaustedError(absl::StrCat(
            "cannot ", what, ": no thread is to be had for it: ", error.what(),
            " (see ulimit -u)"));
      }
    } else {
      changed_.NotifyAll();
    }
    const Steady::time_point deadline =
        Steady::now() + absl::ToChronoNanoseconds(of.limit);
    while (!job->done && Steady::now() < deadline) {
      finished_.WaitFor(&mutex_, absl::FromChrono(deadline - Steady::now()));
    }
    if (job->done) return absl::OkStatus();
    job->stuck = true;
    if (of.num_stuck++ == 0) {
      of.stuck = what;
      of.stuck_since = absl::Now();
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "cannot ", what, ": no answer within ", absl::FormatDuration(of.limit),
        " (a file system that hangs?)"));
  }

  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }

 private:
  struct Job {
    size_t kind = 0;
    std::function<void()> call;
    bool done = false;
    bool stuck = false;  // nobody waits for it
  };
  struct Kind {
    absl::Duration limit;
    int num_stuck = 0;
    std::string stuck;  // the first of them
    absl::Time stuck_since;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        MutexLock lock(&mutex_);
        ++num_idle_;
        while (jobs_.empty() && !stopped_) changed_.Wait(&mutex_);
        --num_idle_;
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job->call();
      job->call = nullptr;  // closes what nobody wants any more
      MutexLock lock(&mutex_);
      job->done = true;
      if (job->stuck) --kinds_[job->kind].num_stuck;
      finished_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;   // a job has come, or all are to stop
  CondVar finished_;  // a job is done
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  int num_idle_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Kind> kinds_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

LimitedCalls::LimitedCalls(std::vector<absl::Duration> limits)
    : state_(std::make_shared<State>(limits)) {}

LimitedCalls::~LimitedCalls() { state_->Stop(); }

absl::Status LimitedCalls::Run(size_t kind, const std::string& what,
                               std::function<void()> call) {
  return state_->Run(kind, what, std::move(call));
}

std::vector<absl::Duration> LookLimits() {
  return {absl::Seconds(2), absl::Seconds(30)};
}

namespace {

// Calls of less are put together: handing over one costs as much as a small
// read.
constexpr size_t kPieceBytes = size_t{1} << 20;

enum Kind : size_t { kLook, kRead, kWrite };

using Calls = std::shared_ptr<LimitedCalls>;

// A file whose call hangs may outlive all but its thread: it keeps the files
// that it came from, which it may use.
template <typename File>
std::shared_ptr<File> Kept(std::shared_ptr<FileSystem> files,
                           std::unique_ptr<File> file) {
  return std::shared_ptr<File>(
      file.release(), [files = std::move(files)](File* kept) { delete kept; });
}

class LimitedWritableFile : public WritableFile {
 public:
  LimitedWritableFile(Calls calls, std::string path,
                      std::shared_ptr<WritableFile> file)
      : calls_(std::move(calls)),
        path_(std::move(path)),
        file_(std::move(file)) {}

  ~LimitedWritableFile() override {
    calls_
        ->Run(kWrite, absl::StrCat("close ", path_),
              [file = std::move(file_)]() mutable { file = nullptr; })
        .IgnoreError();
  }

  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      const size_t room = kPieceBytes - piece_.size();
      piece_.append(bytes.data(), std::min(room, bytes.size()));
      bytes.remove_prefix(std::min(room, bytes.size()));
      if (piece_.size() < kPieceBytes) continue;
      AGG_RETURN_IF_ERROR(Flush());
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    AGG_RETURN_IF_ERROR(Flush());
    return calls_->Get<absl::Status>(kWrite, absl::StrCat("sync ", path_),
                                     [file = file_] { return file->Sync(); });
  }

  absl::Status Close() override {
    AGG_RETURN_IF_ERROR(Flush());
    return calls_->Get<absl::Status>(kWrite, absl::StrCat("close ", path_),
                                     [file = file_] { return file->Close(); });
  }

 private:
  absl::Status Flush() {
    if (piece_.empty()) return absl::OkStatus();
    auto piece = std::make_shared<std::string>();
    piece->swap(piece_);
    const absl::Status status = calls_->Get<absl::Status>(
        kWrite, absl::StrCat("write ", path_),
        [file = file_, piece] { return file->Append(*piece); });
    piece_.reserve(kPieceBytes);
    return status;
  }

  const Calls calls_;
  const std::string path_;
  std::shared_ptr<WritableFile> file_;
  std::string piece_;
};

class LimitedReadableFile : public ReadableFile {
 public:
  LimitedReadableFile(Calls calls, std::string path,
                      std::shared_ptr<ReadableFile> file)
      : calls_(std::move(calls)),
        path_(std::move(path)),
        file_(std::move(file)),
        num_bytes_(file_->num_bytes()) {}

  ~LimitedReadableFile() override {
    calls_
        ->Run(kRead, absl::StrCat("close ", path_),
              [file = std::move(file_)]() mutable { file = nullptr; })
        .IgnoreError();
  }

  int64_t num_bytes() const override { return num_bytes_; }

  absl::Status Read(int64_t offset, absl::Span<char> bytes) override {
    MutexLock lock(&mutex_);
    while (!bytes.empty()) {
      const int64_t have = offset - piece_at_;
      if (piece_ == nullptr || have < 0 ||
          have >= static_cast<int64_t>(piece_->size())) {
        AGG_RETURN_IF_ERROR(Fetch(offset, bytes.size()));
        continue;
      }
      const size_t num_bytes =
          std::min(bytes.size(), piece_->size() - static_cast<size_t>(have));
      std::memcpy(bytes.data(), piece_->data() + have, num_bytes);
      bytes.remove_prefix(num_bytes);
      offset += static_cast<int64_t>(num_bytes);
    }
    return absl::OkStatus();
  }

 private:
  // At least so many bytes; a read beyond the end is the file's own error.
  absl::Status Fetch(int64_t offset, size_t num_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t left = std::max<int64_t>(num_bytes_ - offset, 0);
    const size_t wanted =
        std::max(num_bytes, std::min(kPieceBytes, static_cast<size_t>(left)));
    const auto piece = std::make_shared<std::string>(wanted, '\0');
    piece_ = nullptr;
    const absl::Status status = calls_->Get<absl::Status>(
        kRead, absl::StrCat("read ", path_), [file = file_, piece, offset] {
          return file->Read(offset, absl::MakeSpan(*piece));
        });
    if (!status.ok()) return status;
    piece_ = piece;
    piece_at_ = offset;
    return status;
  }

  const Calls calls_;
  const std::string path_;
  std::shared_ptr<ReadableFile> file_;
  const int64_t num_bytes_;
  Mutex mutex_;
  // The bytes from piece_at_ on that were read last.
  std::shared_ptr<std::string> piece_ ABSL_GUARDED_BY(mutex_);
  int64_t piece_at_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LimitedFiles : public FileSystem {
 public:
  LimitedFiles(std::unique_ptr<FileSystem> files, const FileLimits& limits)
      : files_(std::move(files)),
        calls_(std::make_shared<LimitedCalls>(std::vector<absl::Duration>{
            limits.look, limits.read, limits.write})) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    using Result = absl::StatusOr<std::unique_ptr<WritableFile>>;
    Result file = calls_->Get<Result>(
        kWrite, absl::StrCat("create ", path),
        [files = files_, path] { return files->Create(path); });
    if (!file.ok()) return file;
    return std::make_unique<LimitedWritableFile>(
        calls_, path, Kept(files_, *std::move(file)));
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    using Result = absl::StatusOr<std::unique_ptr<ReadableFile>>;
    Result file = calls_->Get<Result>(
        kLook, absl::StrCat("open ", path),
        [files = files_, path] { return files->Open(path); });
    if (!file.ok()) return file;
    return std::make_unique<LimitedReadableFile>(
        calls_, path, Kept(files_, *std::move(file)));
  }

  absl::Status CreateFolder(const std::string& path) override {
    return Write("create folder", path,
                 [files = files_, path] { return files->CreateFolder(path); });
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Write("rename to", to, [files = files_, from, to] {
      return files->Rename(from, to);
    });
  }

  absl::Status SyncFolder(const std::string& path) override {
    return Write("sync folder", path,
                 [files = files_, path] { return files->SyncFolder(path); });
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    using Result = absl::StatusOr<std::vector<std::string>>;
    return calls_->Get<Result>(
        kLook, absl::StrCat("list ", path),
        [files = files_, path] { return files->List(path); });
  }

  absl::Status Remove(const std::string& path) override {
    return Write("remove", path,
                 [files = files_, path] { return files->Remove(path); });
  }

 private:
  absl::Status Write(absl::string_view operation, const std::string& path,
                     std::function<absl::Status()> call) {
    return calls_->Get<absl::Status>(kWrite, absl::StrCat(operation, " ", path),
                                     std::move(call));
  }

  const std::shared_ptr<FileSystem> files_;
  const Calls calls_;
};

}  // namespace

std::unique_ptr<FileSystem> LimitFiles(std::unique_ptr<FileSystem> files,
                                       const FileLimits& limits) {
  return std::make_unique<LimitedFiles>(std::move(files), limits);
}

}  // namespace agg
