// A thread that runs closures in order: for calls that compute or allocate,
// which must not hold up gRPC's few callback threads.
#ifndef AGG_SERVER_RPC_EXECUTOR_H_
#define AGG_SERVER_RPC_EXECUTOR_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// Thread-safe.
class Executor {
 public:
  Executor();
  // Runs what is queued, then ends the thread.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void Run(std::function<void()> closure);

 private:
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_EXECUTOR_H_
