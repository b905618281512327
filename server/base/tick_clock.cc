// At most kMaxTick is counted from one tick to the next: a process that was
// frozen has missed its ticks.
#include "server/base/tick_clock.h"

#include <algorithm>
#include <thread>

#include "absl/time/clock.h"

namespace agg {

TickClock::TickClock(const Clock* base)
    : base_(base), ticked_at_(base->Now()), counted_(ticked_at_) {}

absl::Time TickClock::Counted(absl::Time now) const {
  return counted_ + std::min(now - ticked_at_, kMaxTick);
}

absl::Time TickClock::Now() const {
  MutexLock lock(&mutex_);
  // Read under the lock: else a tick between the two would make it go back.
  return Counted(base_->Now());
}

void TickClock::Tick() {
  MutexLock lock(&mutex_);
  const absl::Time now = base_->Now();
  counted_ = Counted(now);
  ticked_at_ = now;
}

const Clock* TickClock::Real() {
  static const TickClock* const clock = [] {
    auto* ticking = new TickClock(Clock::Real());
    std::thread([ticking] {
      for (;;) {
        absl::SleepFor(kInterval);
        ticking->Tick();
      }
    }).detach();
    return ticking;
  }();
  return clock;
}

}  // namespace agg
