// Which rows each tensor of a wave has, as steps of the same rows.
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/shard_compute.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
