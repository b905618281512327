// What a device does at best: its memory, its bus, its fp64 tensor cores.
#ifndef AGG_TESTS_BENCH_DEVICE_LIMITS_H_
#define AGG_TESTS_BENCH_DEVICE_LIMITS_H_

#include "tests/bench/bench_file.h"
#include "tests/bench/copy_turns.h"

namespace agg {

// What kernels are compared with in print; the file has each turn's own copy.
struct DeviceLimits {
  double copy_bytes_per_second = 0.0;  // read and written
  double fp64_per_second = 0.0;        // the larger of both mma shapes
};

// Measures, prints, and sets "copy", "bus" and "fp64" in `file`. Ends the
// process with a message if a call fails. `smoke`: little work.
DeviceLimits MeasureLimits(bool smoke, CopyTurns* turns, BenchFile* file);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_DEVICE_LIMITS_H_
