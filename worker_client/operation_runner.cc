// A thread is made when there are more operations than threads that wait.
#include "worker_client/operation_runner.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {
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
