// Threads that share one long copy between the caller's memory and a shard's.
#ifndef AGG_WORKER_CLIENT_COPY_THREADS_H_
#define AGG_WORKER_CLIENT_COPY_THREADS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>  // NOLINT
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// It pays where cores have nothing else to do, one more for each worker of the
// host: tests/bench/copy_threads.cc. Thread-safe.
class CopyThreads {
 public:
  // Copies elements [begin, end).
  using Work = std::function<void(int64_t begin, int64_t end)>;
  static constexpr int kMaxThreads = 16;
  // Parts begin at multiples of this: whole lines of memory, and whole blocks
  // of int8 (row_format.h).
  static constexpr int64_t kPartAlignment = 256;
  // A MiB of float32: less is copied before another thread is awake.
  static constexpr int64_t kLeastElements = int64_t{1} << 18;

  // `num_threads` share a copy, the caller's among them. 1 to kMaxThreads.
  explicit CopyThreads(int num_threads);
  ~CopyThreads();
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  // `work` for parts of [0, num_elements), which have all ended when it
  // returns. Who comes while another one's are shared does all of its own.
  void Run(int64_t num_elements, const Work& work);

 private:
  void Loop();
  // Takes the next part of work_, if there is one left, and does it.
  bool DoPart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int num_parts_;  // of a copy
  std::atomic<bool> busy_{false};
  Mutex mutex_;
  CondVar changed_;
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: there is none
  int64_t num_elements_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_ ABSL_GUARDED_BY(mutex_) = 0;       // part that nobody has taken
  int num_ended_ ABSL_GUARDED_BY(mutex_) = 0;  // parts
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_COPY_THREADS_H_
