#include "kernels/step_constants.h"

#include <cmath>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(StepConstantsTest, BiasCorrectionsFollowTheirPowers) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  for (const int64_t step : {1, 2, 3, 10, 1000, 1000000}) {
    const StepConstants c = MakeStepConstants(adam, step, 0.1f, 0.0f, 1.0f);
    const double bias1 = 1.0 - std::pow(static_cast<double>(0.9f), step);
    const double bias2 = 1.0 - std::pow(static_cast<double>(0.999f), step);
    EXPECT_FLOAT_EQ(c.inverse_bias1, 1.0 / bias1) << step;
    EXPECT_FLOAT_EQ(c.inverse_root_bias2, 1.0 / std::sqrt(bias2)) << step;
    EXPECT_FLOAT_EQ(c.adam_rate, -0.1 / bias1) << step;
  }
}

TEST(StepConstantsTest, TrustMultipliesTheRate) {
  OptimizerOptions lars;
  lars.kind = OptimizerKind::kLars;
  const StepConstants c = MakeStepConstants(lars, 1, 0.5f, 0.25f, 3.0f);
  EXPECT_EQ(c.rate, 1.5f);
  EXPECT_EQ(c.negative_rate, -1.5f);
  EXPECT_EQ(c.decay, 0.25f);
}

TEST(StepConstantsTest, AdamWShrinks) {
  const StepConstants c =
      MakeStepConstants(OptimizerOptions(), 1, 0.5f, 0.25f, 1.0f);
  EXPECT_EQ(c.shrink, 0.875f);
}

}  // namespace
}  // namespace agg
