// Work, hooks and callbacks run without the lock: they may call back.
#include "worker_client/operation_state.h"

#include <utility>

#include "absl/time/clock.h"

namespace agg {

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

}  // namespace agg
