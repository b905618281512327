// Time as a dependency, so that no test waits for it.
#ifndef AGG_SERVER_BASE_CLOCK_H_
#define AGG_SERVER_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

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

}  // namespace agg

#endif  // AGG_SERVER_BASE_CLOCK_H_
