#include "kernels/cpu/block_plan.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(BlockPlanTest, CutsRangesIntoBlocksInOrder) {
  const std::vector<ElementRange> ranges = {
      {0, 2 * kBlockElements + 5},
      {4 * kBlockElements, 0},
      {5 * kBlockElements, kBlockElements}};
  const BlockPlan plan = PlanBlocks(ranges);
  ASSERT_EQ(plan.blocks.size(), 4u);
  EXPECT_EQ(plan.num_elements, 3 * kBlockElements + 5);
  EXPECT_EQ(plan.blocks[1].begin, kBlockElements);
  EXPECT_EQ(plan.blocks[2].begin, 2 * kBlockElements);
  EXPECT_EQ(plan.blocks[2].num_elements, 5);
  EXPECT_EQ(plan.blocks[3].range_index, 2);
  EXPECT_EQ(plan.blocks[3].begin, 5 * kBlockElements);
}

TEST(BlockPlanTest, SmallBlocksShareAUnit) {
  const std::vector<ElementRange> ranges(1000, ElementRange{0, 100});
  const BlockPlan plan = PlanBlocks(ranges);
  EXPECT_EQ(plan.blocks.size(), 1000u);
  EXPECT_EQ(plan.num_units(), 2);  // 100,000 elements
  EXPECT_THAT(plan.unit_begins, testing::ElementsAre(0, 656, 1000));
}

TEST(BlockPlanTest, NothingIsNoUnit) {
  EXPECT_EQ(PlanBlocks({}).num_units(), 0);
  const std::vector<ElementRange> empty = {{0, 0}, {32, 0}};
  EXPECT_EQ(PlanBlocks(empty).num_units(), 0);
}

}  // namespace
}  // namespace agg
