#include "gtest/gtest.h"
#include "server/server.h"

namespace agg {
namespace {

const HostMemory kHost = {1000, "cgroup limit"};

TEST(ShardBudgetTest, IsFourFifthsWhereNothingIsConfigured) {
  const MemoryBudget budget = CompleteBudget({0, 0}, kHost, {500, 100});
  EXPECT_EQ(budget.host_bytes, 800);
  EXPECT_EQ(budget.device_bytes, 400);
}

TEST(ShardBudgetTest, IsAsConfigured) {
  const MemoryBudget budget = CompleteBudget({900, 450}, kHost, {500, 100});
  EXPECT_EQ(budget.host_bytes, 900);
  EXPECT_EQ(budget.device_bytes, 450);
}

TEST(ShardBudgetTest, LeavesTheDeviceOutWithoutOne) {
  EXPECT_EQ(CompleteBudget({0, 0}, kHost, {}).device_bytes, 0);
}

}  // namespace
}  // namespace agg
