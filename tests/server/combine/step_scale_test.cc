#include "server/combine/step_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/reference/adascale_estimators.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

StepScaleOptions Adascale() {
  StepScaleOptions options;
  options.kind = StepScale::kAdascale;
  return options;
}

std::vector<RowInfo> Infos(int num_rows) {
  return std::vector<RowInfo>(num_rows);
}

// Gradient of sum(output) of a 2x2 linear layer with bias.
std::vector<double> LinearGradient(double x0, double x1) {
  return {x0, x1, x0, x1, 1, 1};
}

double Gain(const StepScaleOptions& options, const Rows& rows,
            StepScaleState* state) {
  return AdvanceStepScale(options, Infos(static_cast<int>(rows.size())),
                          MakeGram(rows), state)
      .gain;
}

double FirstGain(const Rows& rows) {
  StepScaleState state;
  return Gain(Adascale(), rows, &state);
}

// One worker that averaged `micro` and brings their squared norms.
double AccumulatedGain(StepScaleOptions options, const Rows& micro,
                       double scale, StepScaleState* state) {
  const double num_micro = static_cast<double>(micro.size());
  RowInfo info;
  info.accumulation = static_cast<int>(micro.size());
  info.examples = static_cast<int>(micro.size());
  if (scale > 0) options.baseline_examples = num_micro / scale;
  double squares = 0.0;
  std::vector<double> mean(micro[0].size(), 0.0);
  for (const std::vector<double>& gradient : micro) {
    for (size_t k = 0; k < mean.size(); ++k) {
      squares += gradient[k] * gradient[k];
      mean[k] += gradient[k] / num_micro;
    }
  }
  info.micro_norm_squared_sum = squares;
  return AdvanceStepScale(options, {info}, MakeGram({mean}), state).gain;
}

// Golden values of fairscale/tests/optim (server/combine/README.md 5.2). Theirs
// were computed in float32 and are compared there with allclose (1e-5); those
// whose inputs are no small integers carry float32's rounding.
constexpr double kFloat32 = 2e-7;

TEST(StepScaleTest, FairscaleTwoWorkers) {
  EXPECT_NEAR(FirstGain({LinearGradient(1, 0), LinearGradient(0, 1)}),
              4.0 / 3.0, 1e-15);
  EXPECT_NEAR(FirstGain({LinearGradient(-1, 1), LinearGradient(1, -1)}), 2.0,
              1e-15);
  EXPECT_NEAR(FirstGain({LinearGradient(1, 4), LinearGradient(5, 0.5)}),
              1.4688796680497926, 1e-15);
  EXPECT_NEAR(FirstGain({LinearGradient(-0.2, 3), LinearGradient(5, 0.5)}),
              1.8472893901708, kFloat32);
  // Theirs predates the bias term.
  const double equal = FirstGain({LinearGradient(1, 1), LinearGradient(1, 1)});
  EXPECT_NEAR(equal, 1.0000001249999846, 1e-5);
  EXPECT_NEAR(equal, (1e-6 + 6) / (1e-6 / 2 + 6), 1e-15);
}

TEST(StepScaleTest, FairscaleTwoIterations) {
  StepScaleState state;
  Gain(Adascale(), {LinearGradient(-0.2, 3.3), LinearGradient(5.2, 0.7)},
       &state);
  EXPECT_NEAR(Gain(Adascale(), {LinearGradient(1, 4), LinearGradient(3.1, 0.1)},
                   &state),
              1.6720968158031417, kFloat32);
}

TEST(StepScaleTest, FairscaleAccumulationOfOrthogonalGradients) {
  const Rows micro = {{1, 0, 0, 0, 1, 0, 0, 0},
                      {0, 1, 0, 0, 0, 1, 0, 0},
                      {0, 0, 1, 0, 0, 0, 1, 0},
                      {0, 0, 0, 1, 0, 0, 0, 1}};
  // The gain is the scale, whatever it is; 0: that of the accumulation.
  for (const double scale : {0.0, 4.0 / 3.0, 2.0, 4.0}) {
    StepScaleState state;
    EXPECT_NEAR(AccumulatedGain(Adascale(), micro, scale, &state),
                scale > 0 ? scale : 4.0, 1e-14);
  }
}

// fairscale's elastic cases without its rescaling of the variance, which
// contradicts the paper.
TEST(StepScaleTest, ScaleChangesKeepTheAverages) {
  const double expected[][2] = {
      {3, 2.331997662660}, {6, 4.326641572984}, {9, 6.317240802286}};
  for (const auto& [k, gain] : expected) {
    StepScaleState state;
    EXPECT_NEAR(
        AccumulatedGain(Adascale(), {{0, 1, 0, 1}, {1, 0, 1, 0}}, 0, &state),
        2.0, 1e-15);
    const Rows identical(static_cast<size_t>(k), {0, 1 / k, 0, 1 / k});
    EXPECT_NEAR(AccumulatedGain(Adascale(), identical, 0, &state), gain, 2e-12);
  }
}

// Two linear layers, two workers: gradients by hand-made backpropagation.
// Parameter groups are summed for the model's gain.
TEST(StepScaleTest, FairscaleParameterGroups) {
  Rows first;
  Rows second;
  for (const auto& [x0, x1] : {std::pair(1.0, 2.0), std::pair(3.0, 4.0)}) {
    const double h0 = x0 + 2 * x1 + 0.1;
    const double h1 = 3 * x0 + 4 * x1 + 0.1;
    // d loss/d hidden = column sums of the second layer's weights: 9, 12.
    first.push_back({9 * x0, 9 * x1, 12 * x0, 12 * x1, 9, 12});
    second.push_back({h0, h1, h0, h1, h0, h1, 1, 1, 1});
  }
  EXPECT_NEAR(FirstGain(first), 1.1428571428571428, 1e-14);
  EXPECT_NEAR(FirstGain(second), 1.1471258476157762, kFloat32);
  Rows both = first;
  for (int i = 0; i < 2; ++i) {
    both[i].insert(both[i].end(), second[i].begin(), second[i].end());
  }
  EXPECT_NEAR(FirstGain(both), 1.1440223454935758, kFloat32);
}

// Golden values of adaptdl's scaling rules (server/combine/README.md 5.1).
TEST(StepScaleTest, AdaptdlGains) {
  const double variances[] = {1, 0, 0, 2};
  const double squares[] = {-1, 0, -1, 1};
  const double expected[][5] = {{.5, .5, .5, .5, .6},
                                {1, 1, 1, 1, 1},
                                {2, 2, 2, 2, 1.5},
                                {4, 4, 4, 4, 2},
                                {10, 10, 10, 10, 2.5}};
  for (const auto& row : expected) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(AdascaleGain(std::max(variances[i], 1e-6),
                               std::max(squares[i], 0.0), row[0]),
                  row[i + 1], 1e-14);
    }
  }
}

TEST(StepScaleTest, EstimatesMatchVectors) {
  for (int num_rows = 2; num_rows <= 33; ++num_rows) {
    const Rows rows = BiasedLcgRows(num_rows, num_rows, 80, 0.4);
    const NoiseEstimate noise =
        EstimateNoise(Adascale(), Infos(num_rows), MakeGram(rows));
    for (const reference::Estimate& expected :
         {reference::PaperEstimate(rows),
          reference::FairscaleEstimate(rows, num_rows),
          reference::AdaptdlEstimate(rows, num_rows)}) {
      EXPECT_NEAR(noise.sigma2, static_cast<double>(expected.variance), 1e-11);
      EXPECT_NEAR(noise.mu2, static_cast<double>(expected.mean_squared), 1e-12);
    }
  }
}

TEST(StepScaleTest, UnequalBatchesMatchVectors) {
  const Rows rows = BiasedLcgRows(5, 4, 80, 0.4);
  std::vector<RowInfo> infos = Infos(4);
  const std::vector<double> units = {1, 2, 4, 0.5};
  for (int i = 0; i < 4; ++i) infos[i].examples = int(units[i] * 16);
  StepScaleOptions options = Adascale();
  options.baseline_examples = 16;
  const NoiseEstimate noise = EstimateNoise(options, infos, MakeGram(rows));
  const reference::Estimate expected = reference::UnequalEstimate(rows, units);
  EXPECT_DOUBLE_EQ(noise.scale, 7.5);
  EXPECT_NEAR(noise.sigma2, static_cast<double>(expected.variance), 1e-12);
  EXPECT_NEAR(noise.mu2, static_cast<double>(expected.mean_squared), 1e-13);
}

// Accumulation without micro sums counts like unequal batches, n_i = c.
TEST(StepScaleTest, AccumulationWithoutMicroSums) {
  const Rows rows = BiasedLcgRows(6, 3, 80, 0.4);
  std::vector<RowInfo> infos = Infos(3);
  for (RowInfo& info : infos) info.accumulation = 5;
  const NoiseEstimate noise = EstimateNoise(Adascale(), infos, MakeGram(rows));
  const reference::Estimate expected =
      reference::UnequalEstimate(rows, {5, 5, 5});
  EXPECT_EQ(noise.scale, 15);
  EXPECT_EQ(noise.num_micro, 15);
  EXPECT_NEAR(noise.sigma2, static_cast<double>(expected.variance), 1e-12);
  EXPECT_NEAR(noise.mu2, static_cast<double>(expected.mean_squared), 1e-13);
}

// Micro sums of several workers give fairscale's estimate over all of them,
// whatever the loss scales.
TEST(StepScaleTest, MicroSumsMatchFairscaleOnMicroGradients) {
  const Rows micro = BiasedLcgRows(7, 12, 40, 0.5);
  Rows rows(3, std::vector<double>(40, 0.0));
  std::vector<RowInfo> infos = Infos(3);
  for (int i = 0; i < 3; ++i) {
    infos[i].accumulation = 4;
    infos[i].loss_scale = i + 2.0;
    double squares = 0.0;
    for (int m = 4 * i; m < 4 * i + 4; ++m) {
      for (int k = 0; k < 40; ++k) {
        rows[i][k] += micro[m][k] / 4;
        squares += micro[m][k] * micro[m][k];
      }
    }
    infos[i].micro_norm_squared_sum =
        squares * infos[i].loss_scale * infos[i].loss_scale;
  }
  const NoiseEstimate noise = EstimateNoise(Adascale(), infos, MakeGram(rows));
  const reference::Estimate expected = reference::FairscaleEstimate(micro, 12);
  EXPECT_NEAR(noise.sigma2, static_cast<double>(expected.variance), 1e-12);
  EXPECT_NEAR(noise.mu2, static_cast<double>(expected.mean_squared), 1e-13);
  // A sum that is no number is as good as none.
  infos[1].micro_norm_squared_sum = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(
      std::isfinite(EstimateNoise(Adascale(), infos, MakeGram(rows)).sigma2));
}

TEST(StepScaleTest, SequencesMatchTheReferenceInAllFourConventions) {
  for (const bool debiased : {true, false}) {
    for (const bool clip_first : {true, false}) {
      StepScaleOptions options = Adascale();
      options.averaging = debiased ? Averaging::kDebiased : Averaging::kPaper;
      options.clip_before_average = clip_first;
      options.smoothing = 0.75;  // the paper's mean ends after three samples
      StepScaleState state;
      reference::Averages averages(debiased);
      double tau = 0.0;
      for (int t = 0; t < 10; ++t) {
        const Rows rows = BiasedLcgRows(40 + t, 4, 30, 0.05);  // mu2 < 0, too
        const StepScaleResult result =
            AdvanceStepScale(options, Infos(4), MakeGram(rows), &state);
        const reference::Estimate sample =
            reference::FairscaleEstimate(rows, 4);
        const reference::Estimate average =
            clip_first ? averages.Add(sample, 0.75)
                       : averages.AddThenClip(sample, 0.75);
        const double gain = static_cast<double>(reference::Gain(average, 4));
        EXPECT_NEAR(result.gain, gain, 1e-12);
        EXPECT_NEAR(result.sigma2_mean, static_cast<double>(average.variance),
                    1e-12);
        EXPECT_NEAR(result.mu2_mean, static_cast<double>(average.mean_squared),
                    1e-12);
        EXPECT_EQ(result.step_factor, result.gain);
        tau += gain;
        EXPECT_NEAR(state.tau, tau, 1e-11);
      }
    }
  }
}

// The gain is of prior rounds, and the first one is 1.
TEST(StepScaleTest, LaggedSequencesMatchTheSubmission) {
  StepScaleOptions options = Adascale();
  options.averaging = Averaging::kLagged;
  options.smoothing = 0.75;
  StepScaleState state;
  reference::PriorGains prior;
  double tau = 0.0;
  double announced = 1.0;
  for (int t = 0; t < 12; ++t) {
    // Workers join, and leave again.
    const int num_rows = t < 4 ? 4 : t < 8 ? 9 : 3;
    const Rows rows = BiasedLcgRows(70 + t, num_rows, 30, 0.3);
    const double gain = static_cast<double>(prior.Next(rows, num_rows, 0.75));
    const StepScaleResult result =
        AdvanceStepScale(options, Infos(num_rows), MakeGram(rows), &state);
    EXPECT_NEAR(result.gain, gain, 1e-12);
    EXPECT_EQ(result.step_factor, result.gain);
    const bool same_scale = t != 4 && t != 8;
    EXPECT_EQ(result.gain == announced, same_scale) << t;
    announced = result.next_gain;
    tau += gain;
    EXPECT_NEAR(state.tau, tau, 1e-11);
    if (t == 0) {
      EXPECT_EQ(result.gain, 1.0);
      EXPECT_TRUE(std::isnan(result.sigma2_mean));
    }
  }
}

TEST(StepScaleTest, ALaggedGainDoesNotDependOnTheGradientItMultiplies) {
  for (const bool clip_first : {true, false}) {
    StepScaleOptions options = Adascale();
    options.averaging = Averaging::kLagged;
    options.clip_before_average = clip_first;
    StepScaleState before;
    AdvanceStepScale(options, Infos(4), MakeGram(BiasedLcgRows(1, 4, 30, 0.3)),
                     &before);
    StepScaleState state = before;
    const double gain =
        AdvanceStepScale(options, Infos(4),
                         MakeGram(BiasedLcgRows(2, 4, 30, 0.3)), &state)
            .gain;
    for (const double bias : {0.0, 1.0, 1e6}) {
      state = before;
      EXPECT_EQ(
          AdvanceStepScale(options, Infos(4),
                           MakeGram(BiasedLcgRows(3, 4, 30, bias)), &state)
              .gain,
          gain);
    }
    // Beside it, that of "paper" does.
    options.averaging = Averaging::kPaper;
    state = before;
    EXPECT_NE(AdvanceStepScale(options, Infos(4),
                               MakeGram(BiasedLcgRows(3, 4, 30, 1e6)), &state)
                  .gain,
              gain);
  }
}

TEST(StepScaleTest, OnlyALaggedGainIsKnownBefore) {
  for (const Averaging averaging : {Averaging::kDebiased, Averaging::kPaper}) {
    StepScaleOptions options = Adascale();
    options.averaging = averaging;
    StepScaleState state;
    EXPECT_TRUE(std::isnan(
        AdvanceStepScale(options, Infos(4),
                         MakeGram(BiasedLcgRows(1, 4, 30, 0.3)), &state)
            .next_gain));
  }
}

// AdaptDL's order and theta: 0.999 to the power of the scale.
TEST(StepScaleTest, SmoothingPerBaselineBatchMatchesAdaptdl) {
  StepScaleOptions options = Adascale();
  options.clip_before_average = false;
  options.smoothing = 0.9;
  options.smoothing_per = SmoothingPer::kBaselineBatch;
  StepScaleState state;
  reference::Averages averages(/*debiased=*/true);
  for (int t = 0; t < 10; ++t) {
    const int num_rows = 2 + t % 5;
    const Rows rows = BiasedLcgRows(90 + t, num_rows, 30, 0.05);
    const reference::Estimate average =
        averages.AddThenClip(reference::AdaptdlEstimate(rows, num_rows),
                             reference::PowerOfScale(0.9L, num_rows));
    EXPECT_NEAR(
        AdvanceStepScale(options, Infos(num_rows), MakeGram(rows), &state).gain,
        static_cast<double>(reference::Gain(average, num_rows)), 1e-12);
  }
}

// At S = 1000 the default keeps nothing, AdaptDL's 0.37.
TEST(StepScaleTest, SmoothingByBaselineBatchesCountsExamples) {
  StepScaleOptions options = Adascale();
  options.smoothing = 0.999;
  options.smoothing_per = SmoothingPer::kBaselineBatch;
  options.baseline_examples = 4;
  std::vector<RowInfo> infos = Infos(2);
  for (RowInfo& info : infos) info.examples = 2000;  // N = 1000
  StepScaleState state;
  AdvanceStepScale(options, infos, MakeGram({{1, 0}, {0, 1}}), &state);
  EXPECT_NEAR(state.variance_weight, 1.0 - 0.36769542477096373, 1e-14);
}

// Tensors a to c, of which b and c are one group; a fourth group is empty.
class PerGroupTest : public testing::TestWithParam<bool> {
 protected:
  PerGroupTest() {
    options_.gain_scope = GainScope::kPerGroup;
    options_.groups = {"", "bias", "unused"};
    options_.clip_before_average = GetParam();
    options_.smoothing = 0.75;
  }

  static Rows Columns(const Rows& rows, int begin, int end) {
    Rows part;
    for (const std::vector<double>& row : rows) {
      part.emplace_back(row.begin() + begin, row.begin() + end);
    }
    return part;
  }

  StepScaleResult Advance(const Rows& rows, const std::vector<RowInfo>& infos) {
    const std::vector<GramMatrix> groups = {MakeGram(Columns(rows, 0, 20)),
                                            MakeGram(Columns(rows, 20, 33)),
                                            GramMatrix()};
    return AdvanceStepScale(options_, infos, MakeGram(rows), &state_, groups);
  }

  StepScaleOptions options_ = Adascale();
  StepScaleState state_;
};

TEST_P(PerGroupTest, GainsMatchTheReference) {
  reference::GroupGains expected({0, 20, 33}, GetParam());
  double tau = 0.0;
  for (int t = 0; t < 10; ++t) {
    const int num_rows = t < 5 ? 4 : 7;
    // The groups' noises differ.
    Rows rows = BiasedLcgRows(200 + t, num_rows, 33, 0.1);
    for (std::vector<double>& row : rows) {
      for (int k = 20; k < 33; ++k) row[k] = 0.125 * row[k] + 0.25;
    }
    const std::vector<reference::Real> gains =
        expected.Next(rows, num_rows, 0.75L);
    const StepScaleResult result = Advance(rows, Infos(num_rows));
    ASSERT_EQ(result.group_gains.size(), 3u);
    EXPECT_NEAR(result.group_gains[0], static_cast<double>(gains[0]), 1e-12);
    EXPECT_NEAR(result.group_gains[1], static_cast<double>(gains[1]), 1e-12);
    EXPECT_EQ(result.group_gains[2], 1.0);
    EXPECT_GT(result.group_gains[0], result.group_gains[1] + 0.5);
    EXPECT_EQ(result.group_factors, result.group_gains);
    EXPECT_NEAR(result.gain, static_cast<double>(gains[2]), 1e-12);
    tau += result.gain;
    EXPECT_EQ(state_.tau, tau);
  }
}

TEST_P(PerGroupTest, OneGroupIsTheModel) {
  options_.groups = {""};
  StepScaleOptions global = options_;
  global.gain_scope = GainScope::kGlobal;
  StepScaleState model;
  for (int t = 0; t < 5; ++t) {
    const GramMatrix gram = MakeGram(BiasedLcgRows(7 + t, 4, 33, 0.1));
    const double gain = AdvanceStepScale(global, Infos(4), gram, &model).gain;
    const StepScaleResult result =
        AdvanceStepScale(options_, Infos(4), gram, &state_, {gram});
    EXPECT_EQ(result.gain, gain);
    EXPECT_EQ(result.group_gains, std::vector<double>{gain});
    // The model's own averages go on beside the groups'.
    EXPECT_EQ(state_.variance, model.variance);
    EXPECT_EQ(state_.num_samples, model.num_samples);
  }
}

TEST_P(PerGroupTest, AGroupThatIsNewBeginsAnew) {
  Advance(BiasedLcgRows(1, 4, 33, 0.1), Infos(4));
  const GroupAverages none = state_.groups[0];
  EXPECT_EQ(state_.groups[1].name, "bias");
  options_.groups[1] = "norm";
  Advance(BiasedLcgRows(2, 4, 33, 0.1), Infos(4));
  EXPECT_EQ(state_.groups[0].num_samples, none.num_samples + 1);
  EXPECT_EQ(state_.groups[1].name, "norm");
  EXPECT_EQ(state_.groups[1].num_samples, 1);
  EXPECT_EQ(state_.groups[2].num_samples, 0);
}

TEST_P(PerGroupTest, LaggedGainsAreOfPriorRounds) {
  options_.averaging = Averaging::kLagged;
  const StepScaleResult first = Advance(BiasedLcgRows(1, 4, 33, 0.1), Infos(4));
  EXPECT_EQ(first.group_gains, std::vector<double>(3, 1.0));
  EXPECT_EQ(first.gain, 1.0);
  const StepScaleState before = state_;
  const StepScaleResult second =
      Advance(BiasedLcgRows(2, 4, 33, 0.1), Infos(4));
  EXPECT_EQ(second.gain, first.next_gain);
  state_ = before;
  EXPECT_EQ(Advance(BiasedLcgRows(3, 4, 33, 9), Infos(4)).group_gains,
            second.group_gains);
}

// Sums of squared norms are of all tensors together.
TEST_P(PerGroupTest, SumsAreNotUsedAndSaid) {
  std::vector<RowInfo> infos = Infos(4);
  for (RowInfo& info : infos) info.accumulation = 2;
  const Rows rows = BiasedLcgRows(1, 4, 33, 0.1);
  const StepScaleResult without = Advance(rows, infos);
  EXPECT_TRUE(without.unused_sum_ranks.empty());
  infos[2].rank = 9;
  infos[2].micro_norm_squared_sum = 1000.0;
  state_ = StepScaleState();
  const StepScaleResult with = Advance(rows, infos);
  EXPECT_EQ(with.unused_sum_ranks, std::vector<int32_t>{9});
  EXPECT_EQ(with.group_gains, without.group_gains);
  EXPECT_EQ(with.gain, without.gain);
}

TEST_P(PerGroupTest, StepScalesWithoutAGainHaveOneFactor) {
  for (const StepScale kind :
       {StepScale::kNone, StepScale::kLinear, StepScale::kSqrt}) {
    options_.kind = kind;
    const StepScaleResult result =
        Advance(BiasedLcgRows(1, 4, 33, 0.1), Infos(4));
    EXPECT_TRUE(result.group_factors.empty());
    EXPECT_GT(result.gain, 1.0);  // measured all the same
  }
  options_.kind = StepScale::kAdamscale;
  const StepScaleResult result =
      Advance(BiasedLcgRows(1, 4, 33, 0.1), Infos(4));
  EXPECT_EQ(result.group_factors[0], std::sqrt(result.group_gains[0]));
}

INSTANTIATE_TEST_SUITE_P(Orders, PerGroupTest, testing::Bool());

TEST(StepScaleTest, FactorsAndTauOfEachKind) {
  const Rows rows = BiasedLcgRows(8, 4, 50, 0.5);
  const auto run = [&](StepScale kind, StepScaleState* state) {
    StepScaleOptions options;
    options.kind = kind;
    return AdvanceStepScale(options, Infos(4), MakeGram(rows), state);
  };
  StepScaleState state;
  const double gain = run(StepScale::kAdascale, &state).gain;
  EXPECT_GT(gain, 1.0);
  EXPECT_LT(gain, 4.0);
  EXPECT_EQ(state.tau, gain);
  state = StepScaleState();
  StepScaleResult result = run(StepScale::kAdamscale, &state);
  EXPECT_EQ(result.step_factor, std::sqrt(gain));
  EXPECT_EQ(state.tau, gain);
  for (const auto& [kind, factor] :
       {std::pair(StepScale::kNone, 1.0), std::pair(StepScale::kLinear, 4.0),
        std::pair(StepScale::kSqrt, 2.0)}) {
    state = StepScaleState();
    result = run(kind, &state);
    EXPECT_EQ(result.step_factor, factor);
    EXPECT_EQ(result.gain, gain);  // measured all the same
    EXPECT_EQ(state.tau, 1.0);
  }
}

TEST(StepScaleTest, OneWorkerHasNoEstimateAndGainOne) {
  StepScaleState state;
  const StepScaleResult first =
      AdvanceStepScale(Adascale(), Infos(1), MakeGram({{3, 4}}), &state);
  EXPECT_TRUE(std::isnan(first.sigma2));
  EXPECT_TRUE(std::isnan(first.mu2_mean));
  EXPECT_EQ(first.gain, 1.0);
  EXPECT_EQ(state.num_samples, 0);
  EXPECT_EQ(state.tau, 1.0);
  // Nor does it disturb what several workers had measured.
  AdvanceStepScale(Adascale(), Infos(4), MakeGram(BiasedLcgRows(9, 4, 20, 1)),
                   &state);
  const StepScaleState before = state;
  const StepScaleResult alone =
      AdvanceStepScale(Adascale(), Infos(1), MakeGram({{3, 4}}), &state);
  EXPECT_EQ(alone.gain, 1.0);
  EXPECT_EQ(state.variance, before.variance);
  EXPECT_EQ(state.num_samples, before.num_samples);
}

TEST(StepScaleTest, FloorsAndZeroGradients) {
  StepScaleState state;
  // sigma2 at its floor, mu2 = 0: everything is noise.
  EXPECT_EQ(AdvanceStepScale(Adascale(), Infos(4), GramMatrix(4), &state).gain,
            4.0);
  StepScaleOptions options = Adascale();
  options.variance_floor = 0.0;
  state = StepScaleState();
  EXPECT_EQ(AdvanceStepScale(options, Infos(4), GramMatrix(4), &state).gain,
            1.0);
  // Tiny gradients drown in the absolute floor, not in the relative one.
  Rows rows = BiasedLcgRows(3, 4, 30, 1.0);
  const double gain = FirstGain(rows);
  for (std::vector<double>& row : rows) {
    for (double& value : row) value *= 1e-8;
  }
  EXPECT_NEAR(FirstGain(rows), 4.0, 1e-5);
  options.relative_floor = 1e-6;
  state = StepScaleState();
  EXPECT_NEAR(Gain(options, rows, &state), gain, 1e-9);
}

TEST(StepScaleTest, AnOverflowingGramLeavesTheAverages) {
  StepScaleState state;
  GramMatrix gram(2);
  gram.Set(0, 0, 1e308);
  gram.Set(0, 1, 1e308);
  gram.Set(1, 1, 1e308);
  gram.Add(gram);
  const StepScaleResult result =
      AdvanceStepScale(Adascale(), Infos(2), gram, &state);
  EXPECT_TRUE(std::isnan(result.sigma2));
  EXPECT_EQ(result.gain, 1.0);
  EXPECT_EQ(state.num_samples, 0);
}

TEST(StepScaleTest, GainStaysBetweenOneAndTheScale) {
  for (int seed = 0; seed < 200; ++seed) {
    const int num_rows = 2 + seed % 32;
    const double bias = std::pow(10.0, seed % 9 - 4);
    StepScaleOptions options = Adascale();
    options.clip_before_average = seed % 2 == 0;
    if (seed % 3 == 0) options.averaging = Averaging::kLagged;
    StepScaleState state;
    for (int t = 0; t < 3; ++t) {
      const double gain =
          Gain(options, BiasedLcgRows(3 * seed + t, num_rows, 5, bias), &state);
      EXPECT_GE(gain, 1.0);
      EXPECT_LE(gain, num_rows);
    }
  }
}

// A sum of g / c in place of g: mostly a loss that was divided by c.
TEST(StepScaleTest, ASumThatCannotBeIsNotUsed) {
  for (const int num_micro : {2, 4, 16}) {
    for (const double noise : {0.0, 0.1, 1.0, 30.0}) {
      Rows micro = NormalRows(num_micro, num_micro, 200);
      std::vector<double> mean(200, 0.0);
      double squares = 0.0;
      for (std::vector<double>& gradient : micro) {
        for (int k = 0; k < 200; ++k) {
          gradient[k] = 1.0 + noise * gradient[k];
          mean[k] += gradient[k] / num_micro;
          squares += gradient[k] * gradient[k];
        }
      }
      RowInfo info;
      info.rank = 5;
      info.accumulation = num_micro;
      info.loss_scale = 8.0;
      const auto estimate = [&](double sum) {
        info.micro_norm_squared_sum = sum * 64.0;
        return EstimateNoise(Adascale(), {info}, MakeGram({mean}));
      };
      const NoiseEstimate good = estimate(squares);
      EXPECT_TRUE(good.small_sum_ranks.empty());
      EXPECT_FALSE(std::isnan(good.sigma2));
      // What rounding to bf16 or int8 may do.
      EXPECT_TRUE(estimate(0.95 * squares).small_sum_ranks.empty());
      const NoiseEstimate divided = estimate(squares / num_micro / num_micro);
      EXPECT_EQ(divided.small_sum_ranks, std::vector<int32_t>{5});
      EXPECT_TRUE(std::isnan(divided.sigma2));  // one row, one sample
    }
  }
}

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
