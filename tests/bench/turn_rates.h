// What a kernel and a device-to-device copy took in turns, as rates.
#ifndef AGG_TESTS_BENCH_TURN_RATES_H_
#define AGG_TESTS_BENCH_TURN_RATES_H_

#include <vector>

#include "server/base/json.h"

namespace agg {

// Seconds of one turn.
struct Turn {
  double copy = 0.0;  // right before the kernel
  double kernel = 0.0;
};

// For a kernel that has to move `kernel_bytes` while its copies read and write
// `copy_bytes` together: {"bytes", "repetitions", "gb_per_s": spread,
// "share_of_copy": spread}. A turn's share is the kernel's bytes per second
// over the copy's. REQUIRES: `turns` is not empty.
Json RatesOf(const std::vector<Turn>& turns, double kernel_bytes,
             double copy_bytes);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_TURN_RATES_H_
