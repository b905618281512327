#include "tests/bench/copy_turns.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

// The emulated device has no clock: all between two events takes 1 ms.
TEST(CopyTurnsTest, RunsUntimedTurnsFirst) {
  const cuda::Stream stream = Must(cuda::MakeStream());
  int num_kernels = 0, num_yardsticks = 0;
  const auto kernel = [&] { ++num_kernels; };
  const auto yardstick = [&] { ++num_yardsticks; };
  for (const double warm_seconds : {0.0, 0.2}) {
    num_kernels = num_yardsticks = 0;
    CopyTurns turns(stream.get(), 4096, warm_seconds);
    // One to load kernels, three that say what a turn takes, 2 ms; those to
    // warm up, by 15; three, and 15.
    const int num_warm = warm_seconds > 0.0 ? 100 : 0;
    const std::vector<Turn> plain = turns.Measure(kernel);
    EXPECT_EQ(plain.size(), 15u);
    EXPECT_EQ(num_kernels, 1 + 3 + num_warm + 3 + 15);
    EXPECT_EQ(plain[0].yardstick, 0.0);
    // Twice as long with the yardstick.
    num_kernels = 0;
    const std::vector<Turn> both = turns.Measure(kernel, yardstick);
    EXPECT_EQ(both.size(), 15u);
    EXPECT_EQ(num_kernels, 1 + 3 + num_warm / 2 + 3 + 15);
    EXPECT_EQ(num_yardsticks, num_kernels);
    EXPECT_FLOAT_EQ(static_cast<float>(both[14].copy), 1e-3f);
    EXPECT_FLOAT_EQ(static_cast<float>(both[14].kernel), 1e-3f);
    EXPECT_FLOAT_EQ(static_cast<float>(both[14].yardstick), 1e-3f);
    // Nobody says it here.
    EXPECT_EQ(JsonLine(turns.sm_mhz()), "{\"before\": null, \"after\": null}");
  }
}

}  // namespace
}  // namespace agg
