// A fixed set of threads that work through numbered units together.
#ifndef AGG_KERNELS_CPU_THREAD_POOL_H_
#define AGG_KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>  // NOLINT
#include <cstdint>
#include <mutex>   // NOLINT
#include <thread>  // NOLINT
#include <vector>

#include "absl/functional/function_ref.h"

namespace agg {

// The caller of ForEach is one of the threads. Which thread takes which unit
// is a matter of timing, so units must write to places of their own.
//
// Thread-compatible: one ForEach at a time, and none from inside a unit.
class ThreadPool {
 public:
  using Unit = absl::FunctionRef<void(int64_t unit, int thread)>;

  // REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls unit(u, t) once for every u in [0, num_units), with t in
  // [0, num_threads()) the calling thread's number; returns when all are done.
  // With `wake` false (or nothing to share) the caller does them all: a
  // handover costs some 10 microseconds.
  void ForEach(int64_t num_units, bool wake, Unit unit);

 private:
  void Work(int thread);
  void TakeUnits(int thread);

  std::vector<std::thread> workers_;

  // The batch in progress: written under mutex_ before generation_ changes,
  // read by workers after they saw the change.
  const Unit* unit_ = nullptr;
  int64_t num_units_ = 0;
  std::atomic<int64_t> next_unit_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  int64_t generation_ = 0;  // guarded by mutex_: batches handed out
  int num_working_ = 0;     // guarded by mutex_: workers not yet done
  bool stopping_ = false;   // guarded by mutex_
};

}  // namespace agg

#endif  // AGG_KERNELS_CPU_THREAD_POOL_H_
