#include "server/shard/shard_compute.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/ingest/arrival_ledger.h"
#include "server/shard/open_round.h"

namespace agg {
namespace {

constexpr int64_t kNumSlices = 300;  // a tensor each

Manifest MakeManifest() {
  Manifest manifest;
  for (int64_t i = 0; i < kNumSlices; ++i) {
    manifest.tensors.push_back({absl::StrCat("t", i), {2}, "", false});
  }
  return manifest;
}

class ShardComputeTest : public testing::Test {
 protected:
  MemoryUse HostPlan(const ShardOptions& options, int64_t num_rows) const {
    const auto compute =
        ShardCompute::Create(options, backend_.get(), MakeManifest());
    EXPECT_TRUE(compute.ok()) << compute.status();
    return (*compute)->PlanWith(num_rows).host;
  }

  const std::unique_ptr<Backend> backend_ = *MakeBackend("cpu", {1});
};

TEST_F(ShardComputeTest, PlansTheLedgerOfAllRanksAndTheSeed) {
  ShardOptions options;
  options.max_workers = 50;
  EXPECT_EQ(HostPlan(options, 7).ledger,
            ArrivalLedger::Bytes(51, kNumSlices, 8));
}

TEST_F(ShardComputeTest, PlansEarlyGramsWhereThereAreAny) {
  ShardOptions options;
  EXPECT_EQ(HostPlan(options, 1).early_grams, EarlyGrams::Bytes(kNumSlices));
  options.early_gram = false;
  EXPECT_EQ(HostPlan(options, 1).early_grams, 0);
}

TEST_F(ShardComputeTest, PlansEachGramTwice) {
  const MemoryUse plan = HostPlan(ShardOptions(), 3);
  EXPECT_EQ(plan.grams, 2 * kNumSlices * (6 * 8 + int64_t{sizeof(SliceGram)}));
}

TEST_F(ShardComputeTest, ABudgetWithoutRoomForTheLedgerIsTooSmall) {
  ShardOptions options;
  options.max_workers = 50;
  const MemoryUse plan = HostPlan(options, 1);
  options.memory_budget.host_bytes = plan.total() - 1;
  EXPECT_EQ(ShardCompute::Create(options, backend_.get(), MakeManifest())
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  options.memory_budget.host_bytes = plan.total();
  EXPECT_TRUE(ShardCompute::Create(options, backend_.get(), MakeManifest())
                  .status()
                  .ok());
}

// By its elements: what goes by slices is not planned, and not named.
TEST_F(ShardComputeTest, AManifestFarBeyondTheBudgetIsRefusedWithoutSlices) {
  ShardOptions options;
  options.num_shards = 2;
  options.memory_budget.host_bytes = int64_t{1} << 30;
  for (const int64_t log_elements : {29, 40}) {
    const Manifest manifest{{{"w", {int64_t{1} << log_elements}, "", false}}};
    const absl::Status status =
        ShardCompute::Create(options, backend_.get(), manifest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("memory_budget_bytes is 1073741824"));
    EXPECT_THAT(std::string(status.message()),
                testing::Not(testing::HasSubstr("arrival ledger")));
  }
  // It is not refused for what another shard has.
  const Manifest two_slices{{{"w", {2 * kMaxSliceElements}, "", false}}};
  EXPECT_EQ(
      ShardCompute::Create(options, backend_.get(), two_slices).status().code(),
      absl::StatusCode::kOk);
}

}  // namespace
}  // namespace agg
