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
  double yardstick = 0.0;  // after another copy; 0: the turn had none
};

// For a kernel that has to move `kernel_bytes` while its copies read and write
// `copy_bytes` together: {"bytes", "repetitions", "gb_per_s": spread,
// "share_of_copy": spread}. A turn's share is the kernel's bytes per second
// over the copy's. REQUIRES: `turns` is not empty.
Json RatesOf(const std::vector<Turn>& turns, double kernel_bytes,
             double copy_bytes);

// A spread of the yardstick's time over the kernel's: the share of its speed
// that the kernel has, which moves the same bytes. Null if a turn has none.
Json ShareOfYardstick(const std::vector<Turn>& turns);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_TURN_RATES_H_
