// A thread is made when there are more operations than threads that wait.
#include "worker_client/operation_runner.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace agg {

// Work, hooks and callbacks run without the lock: they may call back.

OperationState::OperationState(Work work, OnCancel on_cancel)
    : work_(std::move(work)), on_cancel_(std::move(on_cancel)) {}

OperationState::OperationState(absl::Status status)
    : phase_(Phase::kDone), status_(std::move(status)) {}

void OperationState::Run() {
  {
    MutexLock lock(&mutex_);
    if (phase_ != Phase::kOpen) return;
    phase_ = Phase::kRunning;
  }
  Finish(work_(this));
}

void OperationState::Finish(const absl::Status& status) {
  work_ = nullptr;  // and what it holds
  std::vector<std::function<void()>> callbacks;
  {
    MutexLock lock(&mutex_);
    phase_ = Phase::kDone;
    status_ = status;
    on_cancel_ = nullptr;
    callbacks.swap(callbacks_);
    changed_.NotifyAll();
  }
  // Behind the status: who waits for a tensor asks why there is none.
  if (arrivals != nullptr) arrivals->End();
  for (const auto& callback : callbacks) callback();
}

absl::Status OperationState::Wait() {
  Run();
  MutexLock lock(&mutex_);
  while (phase_ != Phase::kDone) changed_.Wait(&mutex_);
  return status_;
}

bool OperationState::WaitUntil(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (phase_ != Phase::kDone) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

void OperationState::Cancel(const absl::Status& reason) {
  OnCancel on_cancel;
  bool begun = true;
  {
    MutexLock lock(&mutex_);
    if (phase_ == Phase::kDone) return;
    begun = phase_ == Phase::kRunning;
    phase_ = Phase::kRunning;  // nobody runs it any more
    on_cancel = on_cancel_;
  }
  cancel_.Cancel(reason);
  if (on_cancel) on_cancel(reason);
  if (!begun) Finish(reason);
}

void OperationState::OnDone(std::function<void()> callback) {
  {
    MutexLock lock(&mutex_);
    if (phase_ != Phase::kDone) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

bool OperationState::done() const {
  MutexLock lock(&mutex_);
  return phase_ == Phase::kDone;
}

absl::Status OperationState::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

namespace {

absl::Status Ended() {
  return absl::CancelledError("this client has left the job");
}

}  // namespace

OperationRunner::~OperationRunner() {
  std::vector<std::shared_ptr<OperationState>> open;
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    open = open_;
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  for (const auto& operation : open) operation->Cancel(Ended());
  // Also those that one who waits runs.
  for (const auto& operation : open) operation->Wait().IgnoreError();
  for (std::thread& thread : threads) thread.join();
}

void OperationRunner::Start(const std::shared_ptr<OperationState>& operation) {
  absl::Status refusal;
  {
    MutexLock lock(&mutex_);
    open_.erase(std::remove_if(open_.begin(), open_.end(),
                               [](const std::shared_ptr<OperationState>& each) {
                                 return each->done();
                               }),
                open_.end());
    if (ending_) {
      refusal = Ended();
    } else if (open_.size() == kMaxOpen) {
      refusal = absl::ResourceExhaustedError(
          absl::StrCat(kMaxOpen, " operations of this client are open; wait ",
                       "for one of them, or Cancel it"));
    } else {
      open_.push_back(operation);
      queue_.push_back(operation);
      if (idle_ < queue_.size()) {
        threads_.emplace_back([this] { Loop(); });
      } else {
        changed_.NotifyAll();
      }
    }
  }
  if (!refusal.ok()) operation->Cancel(refusal);
}

void OperationRunner::Loop() {
  while (true) {
    std::shared_ptr<OperationState> operation;
    {
      MutexLock lock(&mutex_);
      ++idle_;
      while (queue_.empty() && !ending_) changed_.Wait(&mutex_);
      --idle_;
      if (queue_.empty()) return;
      operation = std::move(queue_.front());
      queue_.pop_front();
    }
    operation->Run();
  }
}

}  // namespace agg
