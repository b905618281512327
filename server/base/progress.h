// How far something is that takes long: a number that moves.
#ifndef AGG_SERVER_BASE_PROGRESS_H_
#define AGG_SERVER_BASE_PROGRESS_H_

#include <atomic>
#include <cstdint>

namespace agg {

// Counts pieces of work, for who has to tell what goes on slowly from what
// hangs. Thread-safe.
class Progress {
 public:
  void Note() { count_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_{0};
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_PROGRESS_H_
