#include "server/base/clock.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/time/clock.h"

namespace agg {

namespace {

// The system's time at the start plus what has passed since: a step of the
// system's clock must not end every lease at once, or none.
class RealClock : public Clock {
 public:
  absl::Time Now() const override {
    return start_ +
           absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_start_ =
      std::chrono::steady_clock::now();
};

}  // namespace

const Clock* Clock::Real() {
  static const RealClock* const clock = new RealClock;
  return clock;
}

// At most kMaxTick is counted from one tick to the next: a process that was
// frozen has missed its ticks.
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
