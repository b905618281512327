// A queue between the coordinator, which must not wait, and the thread that
// writes.
#include "server/round_log/round_log.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/round_log.pb.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/round_log/round_record.h"

namespace agg {
namespace {

constexpr size_t kMaxWaiting = 256;
constexpr absl::Duration kLogEvery = absl::Minutes(1);

}  // namespace

absl::StatusOr<std::unique_ptr<RoundLog>> RoundLog::Open(
    const RoundLogOptions& options) {
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<RecordFile> file,
                       RecordFile::Open(options.path));
  return absl::WrapUnique(new RoundLog(options, std::move(file)));
}

RoundLog::RoundLog(const RoundLogOptions& options,
                   std::unique_ptr<RecordFile> file)
    : options_(options),
      file_(std::move(file)),
      run_(std::make_shared<RunDescription>()),
      thread_([this] { Work(); }) {}

RoundLog::~RoundLog() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void RoundLog::SetRun(const RunDescription& run) {
  MutexLock lock(&mutex_);
  run_ = std::make_shared<RunDescription>(run);
}

void RoundLog::Append(const RoundReport& report) {
  MutexLock lock(&mutex_);
  if (entries_.size() >= kMaxWaiting) {
    ++status_.errors;  // logged after the next write
    return;
  }
  entries_.push_back({run_, report});
  changed_.NotifyAll();
}

RoundLogStatus RoundLog::Status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void RoundLog::Work() {
  for (;;) {
    Entry entry;
    {
      MutexLock lock(&mutex_);
      while (entries_.empty() && !stopped_) changed_.Wait(&mutex_);
      if (entries_.empty()) return;
      entry = std::move(entries_.front());
      entries_.pop_front();
    }
    Count(Write(entry));
  }
}

absl::Status RoundLog::Write(const Entry& entry) {
  AGG_ASSIGN_OR_RETURN(const bool others, file_->CatchUp());
  if (others) written_run_ = nullptr;
  v1::RoundLogRecord record = ToProto(entry.report);
  const auto describe = [&] { *record.mutable_run() = ToProto(*entry.run); };
  if (written_run_ != entry.run) describe();
  std::string message = record.SerializeAsString();
  // 4: the length's bytes at most.
  const int64_t num_bytes = static_cast<int64_t>(message.size()) + 4;
  if (file_->num_bytes() > 0 &&
      file_->num_bytes() + num_bytes > options_.max_bytes) {
    AGG_RETURN_IF_ERROR(file_->Rotate());
    written_run_ = nullptr;
    describe();
    message = record.SerializeAsString();
  }
  const absl::Status status = file_->Append(message);
  if (status.ok()) written_run_ = entry.run;
  return status;
}

void RoundLog::Count(const absl::Status& status) {
  RoundLogStatus total;
  {
    MutexLock lock(&mutex_);
    ++(status.ok() ? status_.records : status_.errors);
    total = status_;
  }
  const absl::Time now = Clock::Real()->Now();
  if (total.errors == logged_errors_ || now < logged_at_ + kLogEvery) return;
  logged_at_ = now;
  logged_errors_ = total.errors;
  LogError("round log: ",
           status.ok() ? "rounds end faster than it can be written"
                       : status.message(),
           "; ", total.errors, " rounds are missing from it so far");
}

}  // namespace agg
