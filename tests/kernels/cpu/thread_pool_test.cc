#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/block_plan.h"

namespace agg {
namespace {

TEST(ThreadPoolTest, CallsEveryUnitOnce) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int64_t num_units : {0, 1, 2, 3, 1000}) {
      for (const bool wake : {false, true}) {
        std::vector<int> calls(num_units);
        pool.ForEach(num_units, wake, [&](int64_t unit, int thread) {
          ++calls[unit];
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, num_threads);
        });
        EXPECT_THAT(calls, testing::Each(1));
      }
    }
  }
}

TEST(ThreadPoolTest, WithoutWakeTheCallerDoesAll) {
  ThreadPool pool(4);
  pool.ForEach(100, /*wake=*/false,
               [](int64_t, int thread) { EXPECT_EQ(thread, 0); });
}

// Both units wait for each other: only two threads can finish them.
TEST(ThreadPoolTest, UnitsRunAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> num_started{0};
  pool.ForEach(2, /*wake=*/true, [&](int64_t, int) {
    ++num_started;
    while (num_started.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(num_started.load(), 2);
}

// Batches follow each other at once: a worker that is late for one must not
// take units of the next.
TEST(ThreadPoolTest, BatchesDoNotMix) {
  ThreadPool pool(3);
  int64_t sum = 0;
  for (int64_t batch = 0; batch < 2000; ++batch) {
    std::atomic<int64_t> batch_sum{0};
    pool.ForEach(4, /*wake=*/true, [&](int64_t, int) { batch_sum += batch; });
    ASSERT_EQ(batch_sum.load(), 4 * batch);
    sum += batch_sum;
  }
  EXPECT_EQ(sum, 4 * (2000 * 1999 / 2));
}

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
