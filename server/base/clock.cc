// The real clock.
#include "server/base/clock.h"

#include <chrono>

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

}  // namespace agg
