// The threads that run a client's operations while nobody waits for them.
#ifndef AGG_WORKER_CLIENT_OPERATION_RUNNER_H_
#define AGG_WORKER_CLIENT_OPERATION_RUNNER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/pull_arrivals.h"
#include "worker_client/retry.h"

namespace agg {

// One operation of a client: its work, who runs it, and how it has ended. What
// the handles of operation.h share.
//
//   open --Run--> running --the work returns--> done
//     '------------Cancel, before any Run---------^
//
// The work is run once, by the first thread that asks: the client's, or one
// that waits, which then pays for no change of threads. Thread-safe.
class OperationState {
 public:
  // Called with the operation that it is the work of.
  using Work = std::function<absl::Status(OperationState*)>;
  using OnCancel = std::function<void(const absl::Status& reason)>;

  // `on_cancel` ends the work besides cancel(); it may be null. It and the work
  // are destroyed when the operation is done.
  explicit OperationState(Work work, OnCancel on_cancel = nullptr);
  // Makes an operation that is done.
  explicit OperationState(absl::Status status);
  OperationState(const OperationState&) = delete;
  OperationState& operator=(const OperationState&) = delete;

  // Runs the work on this thread, unless a thread has begun.
  void Run();
  // Runs the work, or waits for another thread's Run to end. Returns the work's
  // status.
  absl::Status Wait();
  // Waits until it is done (true) or `deadline`.
  bool WaitUntil(absl::Time deadline);
  // Ends the work soon with CANCELLED, if it has not ended; at once, if it has
  // not begun.
  void Cancel(const absl::Status& reason);
  // Calls back when it is done: on the thread that ran it, or on this one.
  void OnDone(std::function<void()> callback);

  bool done() const;
  absl::Status status() const;  // OK while it is not done

  // --- For the work.
  CancelSource* cancel() { return &cancel_; }
  // What the work makes, besides its status; read when it is done.
  RoundOutcome outcome;
  // What has arrived of a pull; null if the operation pulls nothing.
  std::unique_ptr<PullArrivals> arrivals;
  // Makes an operation that goes on where this one was cancelled; null if this
  // is no round.
  std::function<std::shared_ptr<OperationState>()> resume;

 private:
  enum class Phase { kOpen, kRunning, kDone };
  void Finish(const absl::Status& status);

  Work work_;  // of the thread that made it kRunning
  CancelSource cancel_;
  mutable Mutex mutex_;
  CondVar changed_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kOpen;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  OnCancel on_cancel_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

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
