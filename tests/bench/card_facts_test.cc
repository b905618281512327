#include "tests/bench/card_facts.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr SmLimits kSm90 = {2048, 32, 1 << 16, 228 << 10, 1 << 10};
constexpr SmLimits kSm120 = {1536, 24, 1 << 16, 100 << 10, 1 << 10};

int Blocks(const SmLimits& limits, int threads, int registers, int shared) {
  return ExpectedBlocks({threads, registers, shared, 0}, limits);
}

// As kernel_resources_test has them.
TEST(SmOccupancyTest, BlocksAreBoundByWhatRunsOutFirst) {
  EXPECT_EQ(Blocks(kSm90, 256, 64, 37120), 4);  // registers
  EXPECT_EQ(Blocks(kSm90, 256, 65, 0), 3);
  EXPECT_EQ(Blocks(kSm90, 256, 80, 0), 3);
  EXPECT_EQ(Blocks(kSm90, 256, 255, 0), 1);
  EXPECT_EQ(Blocks(kSm120, 256, 64, 37120), 2);  // shared memory
  EXPECT_EQ(Blocks(kSm120, 256, 16, 0), 6);      // threads
  EXPECT_EQ(Blocks(kSm120, 32, 16, 0), 24);      // blocks
}

// Lines of the table in kernels/cuda/README.md.
TEST(SmOccupancyTest, AreThoseOfTheTable) {
  EXPECT_EQ(Blocks(kSm90, 128, 154, 48 << 10), 3);  // FewRowsKernel<F32, 8>
  EXPECT_EQ(Blocks(kSm90, 128, 40, 16 << 10), 12);  // FewRowsKernel<F32, 2>
  EXPECT_EQ(Blocks(kSm120, 128, 37, 16 << 10), 5);
  EXPECT_EQ(Blocks(kSm90, 128, 124, 32 << 10), 4);  // TriangleKernel<F32, 4>
}

TEST(SmOccupancyTest, SaysWhatIsNotKnown) {
  EXPECT_EQ(JsonLine(BlocksPerSm({128, 154, 48 << 10, 2}, kSm90)),
            "{\"driver\": 2, \"expected\": 3}");
  EXPECT_EQ(JsonLine(BlocksPerSm({128, 154, 48 << 10, 2}, {})),
            "{\"driver\": 2, \"expected\": null}");
}

}  // namespace
}  // namespace agg
