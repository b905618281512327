#include "server/shard/shard_compute.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/ingest/arrival_ledger.h"
#include "server/shard/open_round.h"
#include "tests/conformance/oracle.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Values() {
  std::vector<float> values = {
      0.0f,        -0.0f,  1.0f,     65504.0f,   65519.99f,  -65520.0f,
      65520.f,     3.2e5f, 3.39e38f, 3.4028e38f, 1e-45f,     2.9802322e-8f,
      2.98024e-8f, -6e-8f, 1e-40f,   kInfinity,  -kInfinity, std::nanf("")};
  for (int e = -149; e < 128; ++e) {
    for (const float part : {1.0f, 1.999f, -1.0f, -1.5f}) {
      values.push_back(std::ldexp(part, e));
    }
  }
  return values;
}

// Against the formats' definition.
TEST(NarrowingLossTest, CountsWhatBecomesInfiniteAndZero) {
  const std::vector<float> values = Values();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    NarrowingLoss expected;
    for (const float value : values) {
      const double narrowed =
          oracle::Widen(dtype, oracle::Narrow(dtype, value));
      expected.num_infinite += std::isfinite(value) && std::isinf(narrowed);
      expected.num_compared += value != 0.0f;
      expected.num_vanished += value != 0.0f && narrowed == 0.0;
    }
    EXPECT_GT(expected.num_infinite, 0u);
    EXPECT_GT(expected.num_vanished, 0u);
    NarrowingLoss loss;
    AddInfinite(values, dtype, 7, &loss);
    AddVanished(values, dtype, &loss);
    EXPECT_EQ(loss.num_infinite, expected.num_infinite) << DTypeName(dtype);
    EXPECT_EQ(loss.num_compared, expected.num_compared);
    EXPECT_EQ(loss.num_vanished, expected.num_vanished);
    EXPECT_EQ(loss.slice, 7);
    AddInfinite(std::vector<float>{1e5f, 1e38f}, dtype, 9, &loss);
    EXPECT_EQ(loss.slice, 7);
    AddInfinite(std::vector<float>{3.4028e38f}, dtype, 3, &loss);
    EXPECT_EQ(loss.slice, 3);
  }
}

TEST(NarrowingLossTest, Float32LosesNothing) {
  NarrowingLoss loss;
  AddInfinite(Values(), DType::kF32, 0, &loss);
  AddVanished(Values(), DType::kF32, &loss);
  EXPECT_EQ(loss.slice, -1);
  EXPECT_EQ(loss.num_infinite, 0u);
  EXPECT_EQ(loss.num_vanished, 0u);
}

// Which rows each tensor of a wave has, as steps of the same rows.

const std::vector<RoundRow>& Rows() {
  static const auto* const rows =
      new std::vector<RoundRow>{{1, 10, 0}, {3, 30, 0}};
  return *rows;
}

StepPlan Step(std::vector<int32_t> tensors, std::vector<double> coefficients) {
  StepPlan step;
  step.per_tensor = true;
  step.tensors = std::move(tensors);
  step.coefficients = std::move(coefficients);
  step.learning_rate = 0.25;
  step.step = 9;
  return step;
}

TEST(WaveStepTest, AllRowsAreOneStep) {
  const auto wave = SplitByRows(Step({2, 5}, {0.5, 0.25, 0.0, 1.0}), Rows());
  ASSERT_TRUE(wave.ok());
  ASSERT_EQ(wave->steps.size(), 1u);
  EXPECT_THAT(wave->unchanged, IsEmpty());
  const StepPlan& step = wave->steps[0];
  EXPECT_TRUE(step.partial);
  EXPECT_TRUE(step.per_tensor);
  EXPECT_THAT(step.tensors, ElementsAre(2, 5));
  EXPECT_THAT(step.coefficients, ElementsAre(0.5, 0.25, 0.0, 1.0));
  EXPECT_THAT(step.excluded_ranks, IsEmpty());
  EXPECT_EQ(step.learning_rate, 0.25);
  EXPECT_EQ(step.step, 9);
}

TEST(WaveStepTest, NoNumberLeavesTheRowOutOfThatTensor) {
  const double nan = std::nan("");
  const auto wave = SplitByRows(
      Step({2, 5, 6, 7}, {0.5, 0.5, nan, 1.0, nan, nan, 0.25, 0.25}), Rows());
  ASSERT_TRUE(wave.ok());
  EXPECT_THAT(wave->unchanged, ElementsAre(6));
  ASSERT_EQ(wave->steps.size(), 2u);
  EXPECT_THAT(wave->steps[0].tensors, ElementsAre(2, 7));
  EXPECT_THAT(wave->steps[0].excluded_ranks, IsEmpty());
  EXPECT_THAT(wave->steps[1].tensors, ElementsAre(5));
  EXPECT_THAT(wave->steps[1].excluded_ranks, ElementsAre(1));
  EXPECT_THAT(wave->steps[1].coefficients, ElementsAre(0.0, 1.0));
}

TEST(WaveStepTest, WithoutRowsEveryTensorStaysAsItIs) {
  const auto wave = SplitByRows(Step({2, 5}, {}), {});
  ASSERT_TRUE(wave.ok());
  EXPECT_THAT(wave->steps, IsEmpty());
  EXPECT_THAT(wave->unchanged, ElementsAre(2, 5));
}

TEST(WaveStepTest, RefusesListsThatDoNotFit) {
  std::vector<StepPlan> steps = {
      Step({2, 5}, {1, 1, 1}), Step({5, 2}, {1, 1, 1, 1}),
      Step({2, 2}, {1, 1, 1, 1}), Step({2}, {1, 1}), Step({2}, {1, 1})};
  steps[3].per_tensor = false;
  steps[4].trust = {1.0f};
  for (const StepPlan& step : steps) {
    EXPECT_EQ(SplitByRows(step, Rows()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace agg
