// A clock that leaves out what its process spent frozen (P31): stopped by a
// signal, a suspended batch job, a machine that moves. Without it a server that
// wakes finds every lease run out, though no worker could have renewed one.
#ifndef AGG_SERVER_BASE_TICK_CLOCK_H_
#define AGG_SERVER_BASE_TICK_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {

// Follows another clock from tick to tick, of which each counts kMaxTick at
// most. Never goes back. Thread-safe.
class TickClock : public Clock {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);
  static constexpr absl::Duration kMaxTick = absl::Seconds(2);

  // `base` outlives it.
  explicit TickClock(const Clock* base);

  absl::Time Now() const override;
  // To be called each kInterval.
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

}  // namespace agg

#endif  // AGG_SERVER_BASE_TICK_CLOCK_H_
