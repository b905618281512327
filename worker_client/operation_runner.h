// The threads that run a client's operations while nobody waits for them.
#ifndef AGG_WORKER_CLIENT_OPERATION_RUNNER_H_
#define AGG_WORKER_CLIENT_OPERATION_RUNNER_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "worker_client/operation_state.h"

namespace agg {

// An operation spends its time in polling gRPC, so each that runs has a thread;
// threads are kept for the next ones, and there are none before the first. An
// operation that somebody waits for before a thread takes it is run by the one
// who waits. Thread-safe.
class OperationRunner {
 public:
  // Operations that are open at a time: more are a mistake in the caller's
  // loop.
  static constexpr size_t kMaxOpen = 64;

  OperationRunner() = default;
  // Cancels what is open, and waits until it has ended.
  ~OperationRunner();
  OperationRunner(const OperationRunner&) = delete;
  OperationRunner& operator=(const OperationRunner&) = delete;

  // The operation runs without its caller. One too many ends at once with
  // RESOURCE_EXHAUSTED, one that comes after the end with CANCELLED.
  void Start(const std::shared_ptr<OperationState>& operation);

 private:
  void Loop();

  Mutex mutex_;
  CondVar changed_;  // queue_, ending_
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that wait for work
  std::deque<std::shared_ptr<OperationState>> queue_ ABSL_GUARDED_BY(mutex_);
  // Some of them may be done: they go with the next Start.
  std::vector<std::shared_ptr<OperationState>> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_OPERATION_RUNNER_H_
