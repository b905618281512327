#include "tests/bench/launch_overhead.h"

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace agg {
namespace {

// No times, which depend on the machine: that the calls are accepted.
TEST(LaunchOverheadTest, MeasuresBothCalls) {
  CpuBackend backend(1);
  const LaunchOverhead overhead = MeasureLaunchOverhead(&backend);
  EXPECT_GT(overhead.gram, 0.0);
  EXPECT_GT(overhead.update, 0.0);
}

}  // namespace
}  // namespace agg
