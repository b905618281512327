// Time as a dependency, so that no test waits for it, and what else says
// whether something goes on: a number that moves.
#ifndef AGG_SERVER_BASE_CLOCK_H_
#define AGG_SERVER_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace agg {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // The system's time, never going back or jumping; never destroyed.
  static const Clock* Real();
};

// Stands still until a test moves it. Thread-safe.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1000000000))
      : nanos_(absl::ToUnixNanos(start)) {}
  absl::Time Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration duration) {
    nanos_ += absl::ToInt64Nanoseconds(duration);
  }

 private:
  std::atomic<int64_t> nanos_;
};

// A clock that leaves out what its process spent frozen (P31): stopped by a
// signal, a suspended batch job, a machine that moves. Without it a server that
// wakes finds every lease run out, though no worker could have renewed one.
//
// Follows another clock from tick to tick, of which each counts kMaxTick at
// most. Never goes back. Thread-safe.
class TickClock : public Clock {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);
  static constexpr absl::Duration kMaxTick = absl::Seconds(2);

  // `base` outlives it.
  explicit TickClock(const Clock* base);

  absl::Time Now() const override;
  // Must be called each kInterval.
  void Tick();

  // Ticks Clock::Real() on a thread of its own; never destroyed. Behind the
  // system's time by what the process spent frozen.
  static const Clock* Real();

 private:
  absl::Time Counted(absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const base_;
  mutable Mutex mutex_;
  absl::Time ticked_at_ ABSL_GUARDED_BY(mutex_);  // by base_
  absl::Time counted_ ABSL_GUARDED_BY(mutex_);    // up to that tick
};

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

#endif  // AGG_SERVER_BASE_CLOCK_H_
