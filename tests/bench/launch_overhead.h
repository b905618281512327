// What a backend's calls cost when there is next to nothing to compute.
#ifndef AGG_TESTS_BENCH_LAUNCH_OVERHEAD_H_
#define AGG_TESTS_BENCH_LAUNCH_OVERHEAD_H_

#include "kernels/backend.h"

namespace agg {

// Median seconds of a call, from call to return.
struct LaunchOverhead {
  double gram = 0.0;
  double update = 0.0;
};

// For 4 float32 rows of 1 Ki elements in one range, sgd with momentum. Ends the
// process with a message if a call fails.
LaunchOverhead MeasureLaunchOverhead(Backend* backend);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_LAUNCH_OVERHEAD_H_
