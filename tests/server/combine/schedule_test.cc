#include <cmath>

#include "gtest/gtest.h"
#include "server/combine/step_scale.h"

namespace agg {
namespace {

ScheduleOptions Make(ScheduleKind kind) {
  ScheduleOptions options;
  options.kind = kind;
  options.learning_rate = 0.8;
  return options;
}

TEST(ScheduleTest, Constant) {
  const ScheduleOptions options = Make(ScheduleKind::kConstant);
  EXPECT_EQ(ScheduledLearningRate(options, 0), 0.8);
  EXPECT_EQ(ScheduledLearningRate(options, 1e9), 0.8);
}

TEST(ScheduleTest, WarmupIsLinearFromItsStartToTheRate) {
  ScheduleOptions options = Make(ScheduleKind::kConstant);
  options.warmup_steps = 10;
  options.warmup_start_factor = 0.25;
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 0), 0.2);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 5), 0.5);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 10), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 11), 0.8);
}

TEST(ScheduleTest, MultistepCountsBoundariesPassed) {
  ScheduleOptions options = Make(ScheduleKind::kMultistep);
  options.boundaries = {10, 20};
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 9.99), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 10), 0.08);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 19), 0.08);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 20), 0.008);
}

TEST(ScheduleTest, Exponential) {
  ScheduleOptions options = Make(ScheduleKind::kExponential);
  options.gamma = 0.25;
  options.decay_steps = 10;
  options.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 2), 0.4);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 4), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 9), 0.4);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 24), 0.05);
}

TEST(ScheduleTest, PolynomialEndsAtItsFinalFactor) {
  ScheduleOptions options = Make(ScheduleKind::kPolynomial);
  options.decay_steps = 10;
  options.power = 2;
  options.final_factor = 0.1;
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 0), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 5), 0.8 * (0.1 + 0.9 * 0.25));
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 10), 0.08);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 99), 0.08);
}

TEST(ScheduleTest, CosineEndsAtItsFinalFactor) {
  ScheduleOptions options = Make(ScheduleKind::kCosine);
  options.decay_steps = 10;
  options.warmup_steps = 2;
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 2), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 7), 0.4);
  EXPECT_NEAR(ScheduledLearningRate(options, 12), 0.0, 1e-16);
  EXPECT_NEAR(ScheduledLearningRate(options, 40), 0.0, 1e-16);
}

TEST(ScheduleTest, InverseSquareRoot) {
  ScheduleOptions options = Make(ScheduleKind::kInverseSqrt);
  options.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 1), 0.2);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 4), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 16), 0.4);
  options.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 0), 0.8);
  EXPECT_DOUBLE_EQ(ScheduledLearningRate(options, 100), 0.08);
}

// LSW of the AdaScale paper: S rounds' worth per step, T = T_S1/S; the first
// 5.5% warm up from lr(0) to S lr(0), then lr = S lr_S1(S t). That is the step
// scale `linear` (the factor S) and this schedule, its boundaries in steps.
TEST(ScheduleTest, LinearScalingWithWarmup) {
  const double scale = 8;
  const double num_steps = 1000;
  ScheduleOptions options = Make(ScheduleKind::kMultistep);
  options.boundaries = {500, 750};
  options.warmup_steps = 0.055 * num_steps;
  options.warmup_start_factor = 1.0 / scale;
  const auto rate = [&](double t) {
    return scale * ScheduledLearningRate(options, t);
  };
  EXPECT_DOUBLE_EQ(rate(0), 0.8);
  EXPECT_DOUBLE_EQ(rate(27.5), (0.8 + 6.4) / 2);
  EXPECT_DOUBLE_EQ(rate(55), 6.4);
  EXPECT_DOUBLE_EQ(rate(499), 6.4);
  EXPECT_DOUBLE_EQ(rate(500), 0.64);
  EXPECT_DOUBLE_EQ(rate(999), 0.064);
}

}  // namespace
}  // namespace agg
