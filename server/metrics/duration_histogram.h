// A histogram of durations with fixed buckets, as a plain value.
#ifndef AGG_SERVER_METRICS_DURATION_HISTOGRAM_H_
#define AGG_SERVER_METRICS_DURATION_HISTOGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace agg {

// prometheus-cpp's own Histogram takes a mutex at each observation and cannot
// be copied; this one is part of a state that is copied and published.
// Thread-compatible.
class DurationHistogram {
 public:
  // Upper bounds in seconds, inclusive; a last bucket without bound follows.
  static constexpr std::array<double, 19> kBounds = {
      1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1,
      0.25, 0.5,    1.0,  2.5,  5.0,    10.0, 25.0, 50.0,   100.0};
  static constexpr size_t kNumBuckets = kBounds.size() + 1;

  void Observe(absl::Duration duration) {
    const double seconds = absl::ToDoubleSeconds(duration);
    size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++counts_[bucket];
    sum_seconds_ += seconds;
  }

  // Observations in each bucket, not cumulated.
  const std::array<uint64_t, kNumBuckets>& counts() const { return counts_; }
  double sum_seconds() const { return sum_seconds_; }

 private:
  std::array<uint64_t, kNumBuckets> counts_ = {};
  double sum_seconds_ = 0.0;
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_DURATION_HISTOGRAM_H_
