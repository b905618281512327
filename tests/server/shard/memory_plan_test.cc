#include "server/shard/memory_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(MemoryPlanTest, CountsWhatIsAllocated) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  const MemoryPlan plan =
      PlanMemory(1000, 3, DType::kBF16, DType::kBF16, adam, MemoryNeeds());
  EXPECT_EQ(plan.host.rows, 3 * 1000 * 2);
  EXPECT_EQ(plan.host.master, 4000);
  EXPECT_EQ(plan.host.state, 8000);
  EXPECT_EQ(plan.host.snapshots, 3 * 1000 * 6);
  EXPECT_EQ(plan.host.frames, 2 * 3 * (4 << 20));
  EXPECT_EQ(plan.host.total(), 6000 + 4000 + 8000 + 18000 + 6 * (4 << 20));
  EXPECT_EQ(plan.device.total(), 0);
  const MemoryPlan f32 = PlanMemory(1000, 0, DType::kF32, DType::kF32,
                                    OptimizerOptions(), MemoryNeeds());
  EXPECT_EQ(f32.host.total(), 4000 + 3 * 4000);
}

TEST(MemoryPlanTest, Int8RowsAreAQuarterAndTheirScales) {
  const MemoryPlan plan = PlanMemory(1024, 3, DType::kI8, DType::kF32,
                                     OptimizerOptions(), MemoryNeeds());
  EXPECT_EQ(plan.host.rows, 3 * (1024 + 4 * 4));
}

TEST(MemoryPlanTest, CountsRowsOfSuccessorsAndNamesThem) {
  const MemoryPlan plan =
      PlanMemory(1 << 20, 3, DType::kBF16, DType::kF32, OptimizerOptions(),
                 MemoryNeeds(), /*num_successors=*/2);
  EXPECT_EQ(plan.host.rows, 3 * (2 << 20));
  EXPECT_EQ(plan.host.successors, 2 * (2 << 20));
  const MemoryPlan without = PlanMemory(1 << 20, 3, DType::kBF16, DType::kF32,
                                        OptimizerOptions(), MemoryNeeds());
  EXPECT_EQ(plan.host.total(), without.host.total() + 2 * (2 << 20));
  EXPECT_THAT(DescribeMemoryPlan(plan),
              HasSubstr("rows 6.0 MiB + successors' rows 4.0 MiB + master"));
  EXPECT_THAT(DescribeMemoryPlan(without), Not(HasSubstr("successors")));
}

TEST(MemoryPlanTest, CountsADeviceApart) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  MemoryNeeds needs;
  needs.on_device = true;
  needs.scratch_bytes = 11;
  needs.device_scratch_bytes = 13;
  const MemoryPlan plan =
      PlanMemory(1000, 3, DType::kBF16, DType::kBF16, adam, needs);
  EXPECT_EQ(plan.host.total(), 6000 + 18000 + 6 * (4 << 20) + 11);
  EXPECT_EQ(plan.device.rows, 6000);
  EXPECT_EQ(plan.device.master, 4000);
  EXPECT_EQ(plan.device.state, 8000);
  EXPECT_EQ(plan.device.snapshots, 2000);  // what was narrowed last
  EXPECT_EQ(plan.device.total(), 6000 + 4000 + 8000 + 2000 + 13);
  EXPECT_EQ(CheckMemoryPlan(plan, {plan.host.total(), plan.device.total()}),
            absl::OkStatus());
  const absl::Status status =
      CheckMemoryPlan(plan, {plan.host.total(), plan.device.total() - 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("device_memory_budget_bytes is 20012"));
  EXPECT_THAT(status.message(), HasSubstr("; on the device rows 0.0 MiB + "));
}

TEST(MemoryPlanTest, RoundsUpWhatTheDeviceRoundsUp) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  MemoryNeeds needs;
  needs.on_device = true;
  needs.device_granularity = 4096;
  const MemoryPlan plan = PlanMemory(2000, 3, DType::kBF16, DType::kBF16, adam,
                                     needs, /*num_successors=*/1);
  EXPECT_EQ(plan.host.rows, 3 * 4000);
  EXPECT_EQ(plan.device.rows, 3 * 4096);
  EXPECT_EQ(plan.device.successors, 4096);
  EXPECT_EQ(plan.device.master, 8192);
  EXPECT_EQ(plan.device.state, 2 * 8192);
  EXPECT_EQ(plan.device.snapshots, 4000) << "plain memory";
  EXPECT_EQ(OnDevice(8192, needs), 8192);
  EXPECT_EQ(OnDevice(0, needs), 0);
}

TEST(MemoryPlanTest, CountsWhatGoesBySlices) {
  MemoryPlan plan;
  plan.host.ledger = 1 << 20;
  plan.host.grams = 2 << 20;
  plan.host.early_grams = 3 << 20;
  EXPECT_EQ(plan.host.total(), 6 << 20);
  EXPECT_EQ(DescribeMemoryPlan(plan),
            "arrival ledger 1.0 MiB + Gram matrices 2.0 MiB + early Grams "
            "3.0 MiB = 6.0 MiB");
}

TEST(MemoryPlanTest, CountsTheCoordinatorsMatricesAndNamesThem) {
  // Packed matrices of two rounds, 8 copies of coefficients.
  EXPECT_EQ(CoordinatorBytes(1, 1, 3, 1), 2 * 6 * 8 + 8 * 3 * 8);
  // Tensor by tensor; the slices of one may all wait for the first of them.
  EXPECT_EQ(CoordinatorBytes(10, 15, 3, 1), 25 * 6 * 8 + 10 * 8 * 3 * 8);
  // Messages of other shards, which are no larger than what there is to send.
  EXPECT_EQ(CoordinatorBytes(1, 1, 3, 4) - CoordinatorBytes(1, 1, 3, 1),
            3 * (3 * 6 * 8));
  EXPECT_EQ(
      CoordinatorBytes(9999, 9999, 64, 4) - CoordinatorBytes(9999, 9999, 64, 1),
      3 * (9 << 20));
  MemoryPlan plan;
  plan.host.coordinator = CoordinatorBytes(10000, 10000, 64, 4);
  const absl::Status status = CheckMemoryPlan(plan, {1 << 20, 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the plan needs coordinator 3"));
  EXPECT_THAT(status.message(), HasSubstr("memory_budget_bytes is 1048576"));
}

TEST(MemoryPlanTest, CountsWhatCopiesAreFetchedThroughAndNamesIt) {
  MemoryPlan plan;
  plan.host.transfer = TransferBytes(1 << 18, 3 << 18);
  EXPECT_EQ(plan.host.total(), (4 << 20) + 4 * (4 << 20));
  EXPECT_EQ(DescribeMemoryPlan(plan), "transfer 20.0 MiB = 20.0 MiB");
}

TEST(MemoryPlanTest, RefusesWithTheNumbers) {
  const MemoryPlan plan = PlanMemory(1 << 20, 1, DType::kF32, DType::kF32,
                                     OptimizerOptions(), MemoryNeeds());
  EXPECT_EQ(CheckMemoryPlan(plan, {0, 0}), absl::OkStatus());
  EXPECT_EQ(CheckMemoryPlan(plan, {plan.host.total(), 0}), absl::OkStatus());
  const absl::Status status = CheckMemoryPlan(plan, {plan.host.total() - 1, 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("rows 4.0 MiB + master 4.0 MiB + snapshots 12.0 MiB + "
                        "frames 8.0 MiB = 28.0 MiB"));
  EXPECT_THAT(status.message(), HasSubstr("memory_budget_bytes is 29360127"));
}

}  // namespace
}  // namespace agg
