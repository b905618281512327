#include "server/combine/decision.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/rule_table.h"
#include "tests/reference/combination_rules.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Error(const Rows& rows, const std::vector<double>& coefficients,
             const reference::Vector& expected) {
  return static_cast<double>(reference::Distance(
             reference::WeightedSum(rows, coefficients), expected)) /
         BackwardScale(rows, coefficients);
}

CombineOptions WithScope(const std::string& rule, Scope scope) {
  CombineOptions options = MakeOptions(rule);
  options.rule.scope = scope;
  return options;
}

// The tensors' elements behind each other.
Rows Concatenate(const std::vector<Rows>& tensors) {
  Rows rows = tensors[0];
  for (size_t t = 1; t < tensors.size(); ++t) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].insert(rows[i].end(), tensors[t][i].begin(), tensors[t][i].end());
    }
  }
  return rows;
}

TEST(DecideTest, AdasumPerTensorAndGlobal) {
  const std::vector<Rows> tensors = {BiasedLcgRows(1, 6, 40, 0.3),
                                     BiasedLcgRows(2, 6, 11, 1.0)};
  const Decision per_tensor =
      DecideRows(WithScope("adasum", Scope::kPerTensor), {}, tensors);
  EXPECT_EQ(per_tensor.kind, DecisionKind::kApply);
  EXPECT_TRUE(per_tensor.per_tensor);
  ASSERT_EQ(per_tensor.coefficients.size(), 2u);
  double norm_squared = 0.0;
  for (int t = 0; t < 2; ++t) {
    const reference::Vector expected = reference::AdasumTree(tensors[t]);
    EXPECT_LE(Error(tensors[t], per_tensor.coefficients[t], expected), 1e-14);
    EXPECT_NEAR(per_tensor.tensors[t].orthogonality,
                static_cast<double>(reference::AdasumOrthogonality(tensors[t])),
                1e-13);
    norm_squared += static_cast<double>(reference::NormSquared(expected));
  }
  EXPECT_NEAR(per_tensor.combined_norm, std::sqrt(norm_squared), 1e-12);

  const Decision global =
      DecideRows(WithScope("adasum", Scope::kGlobal), {}, tensors);
  ASSERT_EQ(global.coefficients.size(), 1u);
  const Rows model = Concatenate(tensors);
  EXPECT_LE(Error(model, global.coefficients[0], reference::AdasumTree(model)),
            1e-14);
  EXPECT_NE(global.coefficients[0], per_tensor.coefficients[0]);
}

TEST(DecideTest, OrthogonalityIsThatOfPerTensorAdasumWhateverTheRule) {
  const std::vector<Rows> tensors = {BiasedLcgRows(3, 5, 40, 0.3),
                                     BiasedLcgRows(4, 5, 11, 1.0)};
  double adasum = 0.0;
  double trace = 0.0;
  for (const Rows& rows : tensors) {
    adasum += static_cast<double>(
        reference::NormSquared(reference::AdasumTree(rows)));
    for (const auto& row : rows) {
      trace +=
          static_cast<double>(reference::NormSquared(reference::ToVector(row)));
    }
  }
  for (const Rule& rule : Rules()) {
    for (const Scope scope : {Scope::kPerTensor, Scope::kGlobal}) {
      const Decision decision =
          DecideRows(WithScope(std::string(rule.name), scope), {}, tensors);
      EXPECT_NEAR(decision.orthogonality, adasum / trace, 1e-13);
      EXPECT_NEAR(
          decision.gradient_diversity,
          static_cast<double>(reference::Diversity(Concatenate(tensors))),
          1e-13);
    }
  }
}

TEST(DecideTest, OneRowOfEveryRule) {
  const Rows rows = {{3, 4}};
  for (const Rule& rule : Rules()) {
    const Decision decision =
        DecideRows(MakeOptions(std::string(rule.name)), {}, {rows});
    EXPECT_EQ(decision.gain, 1.0);
    EXPECT_EQ(decision.orthogonality, 1.0);
    if (decision.of_unit_rows) {
      EXPECT_NEAR(decision.coefficients[0][0], 0.2, 1e-9) << rule.name;
      continue;
    }
    EXPECT_EQ(decision.coefficients[0], std::vector<double>{1.0}) << rule.name;
    EXPECT_EQ(decision.combined_norm, 5.0) << rule.name;
  }
}

TEST(DecideTest, ANonFiniteRowIsExcludedFromEveryTensor) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<Rows> tensors = {BiasedLcgRows(5, 4, 30, 0.3),
                                 BiasedLcgRows(6, 4, 9, 0.3)};
    tensors[1][2][5] = bad;
    RoundInput input = MakeRound(tensors);
    input.rows[2].rank = 17;  // ranks may have gaps
    input.rows[3].rank = 40;
    for (const Scope scope : {Scope::kPerTensor, Scope::kGlobal}) {
      const Decision decision = Decide(WithScope("adasum", scope), {}, input);
      EXPECT_EQ(decision.excluded_ranks, std::vector<int32_t>{17});
      for (const auto& coefficients : decision.coefficients) {
        EXPECT_EQ(coefficients[2], 0.0);
      }
      // The tree is over the rows that are left.
      std::vector<Rows> finite = tensors;
      for (Rows& rows : finite) rows.erase(rows.begin() + 2);
      const Decision expected =
          DecideRows(WithScope("adasum", scope), {}, finite);
      for (size_t s = 0; s < expected.coefficients.size(); ++s) {
        EXPECT_EQ(decision.coefficients[s][0], expected.coefficients[s][0]);
        EXPECT_EQ(decision.coefficients[s][1], expected.coefficients[s][1]);
        EXPECT_EQ(decision.coefficients[s][3], expected.coefficients[s][2]);
      }
      EXPECT_EQ(decision.gain, expected.gain);
    }
  }
}

TEST(DecideTest, NobodyLeftSkipsAndChangesNothing) {
  CombineState state;
  state.step_scale.tau = 7.5;
  state.rule.resize(1);
  state.rule[0].values = {1, 2};
  const Decision decision =
      DecideRows(MakeOptions("adacons"), state, {{{kNan, 1}, {1, kInfinity}}});
  EXPECT_EQ(decision.kind, DecisionKind::kSkip);
  EXPECT_EQ(decision.skip_reason, "every row has a non-finite value");
  EXPECT_EQ(decision.excluded_ranks, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(decision.coefficients.empty());
  EXPECT_EQ(decision.tau, 7.5);
  EXPECT_EQ(decision.next_state.step_scale.tau, 7.5);
  EXPECT_EQ(decision.next_state.rule[0].values, (std::vector<double>{1, 2}));
  EXPECT_TRUE(std::isnan(decision.orthogonality));
  EXPECT_EQ(Decide(MakeOptions("mean"), {}, RoundInput()).kind,
            DecisionKind::kSkip);
}

TEST(DecideTest, ACombinedNormBeyondFloat32Skips) {
  const Rows rows = {{3e38, 0}, {3e38, 0}};
  const Decision sum = DecideRows(MakeOptions("sum"), {}, {rows});
  EXPECT_EQ(sum.kind, DecisionKind::kSkip);
  EXPECT_NE(sum.skip_reason.find("6e+38"), std::string::npos);
  EXPECT_EQ(sum.next_state.step_scale.tau, 0.0);
  EXPECT_EQ(DecideRows(MakeOptions("mean"), {}, {rows}).kind,
            DecisionKind::kApply);
  CombineOptions clipped = MakeOptions("sum");
  clipped.clip_norm = 1.0;
  EXPECT_EQ(DecideRows(clipped, {}, {rows}).kind, DecisionKind::kApply);
  GramMatrix huge(2);
  huge.Set(0, 0, 1e308);
  huge.Set(0, 1, 1e308);
  huge.Set(1, 1, 1e308);
  RoundInput input;
  input.rows.resize(2);
  input.tensors = {huge};
  EXPECT_EQ(Decide(MakeOptions("sum"), {}, input).skip_reason,
            "the combined norm is not finite");
}

TEST(DecideTest, ALearningRateBeyondFloat32Skips) {
  CombineOptions options = MakeOptions("mean");
  options.schedule.learning_rate = 1e39;
  const Decision decision = DecideRows(options, {}, {{{1, 2}, {3, 4}}});
  EXPECT_EQ(decision.kind, DecisionKind::kSkip);
  EXPECT_EQ(decision.skip_reason,
            "the learning rate 1e+39 does not fit float32");
  EXPECT_EQ(decision.tau, 0.0);
  EXPECT_EQ(decision.next_state.step_scale.tau, 0.0);
  options.schedule.learning_rate = 1e38;
  EXPECT_EQ(DecideRows(options, {}, {{{1, 2}, {3, 4}}}).kind,
            DecisionKind::kApply);
}

// A gradient that was pushed times its loss scale is used as the gradient.
TEST(DecideTest, LossScalesAreRemovedFromGramAndCoefficients) {
  const std::vector<Rows> tensors = {BiasedLcgRows(7, 4, 30, 0.3)};
  const std::vector<double> scales = {1024, 1, 0.125, 3};
  for (const char* rule : {"mean", "unit_mean", "adasum", "adacons"}) {
    CombineOptions options = MakeOptions(rule);
    options.clip_norm = 0.5;
    const Decision expected = DecideRows(options, {}, tensors);
    std::vector<Rows> pushed = tensors;
    for (int i = 0; i < 4; ++i) {
      for (double& value : pushed[0][i]) value *= scales[i];
    }
    RoundInput input = MakeRound(pushed);
    for (int i = 0; i < 4; ++i) input.rows[i].loss_scale = scales[i];
    const Decision decision = Decide(options, {}, input);
    EXPECT_NEAR(decision.combined_norm, expected.combined_norm, 1e-13);
    EXPECT_NEAR(decision.gain, expected.gain, 1e-12);
    EXPECT_NEAR(decision.orthogonality, expected.orthogonality, 1e-13);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(decision.coefficients[0][i] * scales[i],
                  expected.coefficients[0][i], 1e-12);
    }
  }
}

TEST(DecideTest, ALossScaleThatIsNoScaleExcludesItsRow) {
  for (const double bad : {0.0, kNan}) {
    RoundInput input = MakeRound({{{1, 0}, {0, 1}}});
    input.rows[1].loss_scale = bad;
    const Decision decision = Decide(MakeOptions("mean"), {}, input);
    EXPECT_EQ(decision.excluded_ranks, std::vector<int32_t>{1});
    EXPECT_EQ(decision.coefficients[0], (std::vector<double>{1.0, 0.0}));
  }
}

TEST(DecideTest, ClipsByTheNormOverAllTensors) {
  const std::vector<Rows> tensors = {NormalRows(8, 3, 30),
                                     NormalRows(9, 3, 12)};
  CombineOptions options = MakeOptions("mean");
  options.clip_norm = 0.75;
  const Decision decision = DecideRows(options, {}, tensors);
  const std::vector<reference::Vector> expected = reference::ClipByGlobalNorm(
      {reference::Mean(tensors[0]), reference::Mean(tensors[1])}, 0.75L);
  for (int t = 0; t < 2; ++t) {
    EXPECT_LE(Error(tensors[t], decision.coefficients[t], expected[t]), 1e-14);
  }
  EXPECT_LT(decision.clip_factor, 1.0);
  EXPECT_NEAR(decision.combined_norm, 0.75, 1e-15);
  // Statistics are of the gradients before clipping.
  options.clip_norm = 0.0;
  EXPECT_EQ(DecideRows(options, {}, tensors).gain, decision.gain);
}

TEST(DecideTest, WeightedMeanUsesExamples) {
  RoundInput input = MakeRound({{{1, 0}, {0, 1}}});
  input.rows[0].examples = 30;
  input.rows[1].examples = 10;
  EXPECT_EQ(Decide(MakeOptions("weighted_mean"), {}, input).coefficients[0],
            (std::vector<double>{0.75, 0.25}));
}

TEST(DecideTest, ScheduleRunsOnTheVersionOrOnTau) {
  CombineOptions options = MakeOptions("mean");
  options.schedule.kind = ScheduleKind::kMultistep;
  options.schedule.boundaries = {10};
  const std::vector<Rows> tensors = {BiasedLcgRows(1, 4, 30, 0.3)};
  CombineState state;
  state.step_scale.tau = 10.75;
  Decision decision = Decide(options, state, MakeRound(tensors, 9));
  EXPECT_EQ(decision.learning_rate, 1.0);
  decision = Decide(options, state, MakeRound(tensors, 10));
  EXPECT_DOUBLE_EQ(decision.learning_rate, 0.1);
  options.step_scale.kind = StepScale::kAdascale;
  decision = Decide(options, state, MakeRound(tensors, 0));
  EXPECT_DOUBLE_EQ(decision.scheduled_learning_rate, 0.1);
  EXPECT_EQ(decision.learning_rate,
            decision.scheduled_learning_rate * decision.gain);
  EXPECT_EQ(decision.tau, 10.75 + decision.gain);
  // floor(tau): a warm-up moves in whole steps.
  options.schedule = ScheduleOptions();
  options.schedule.learning_rate = 1.0;
  options.schedule.warmup_steps = 20;
  decision = Decide(options, state, MakeRound(tensors, 0));
  EXPECT_DOUBLE_EQ(decision.scheduled_learning_rate, 0.5);
}

// Three tensors, of which the last two are one group.
RoundInput GroupedRound(uint32_t seed) {
  RoundInput input = MakeRound({BiasedLcgRows(seed, 4, 30, 0.1),
                                BiasedLcgRows(seed + 1, 4, 20, 2.0),
                                BiasedLcgRows(seed + 2, 4, 10, 2.0)});
  input.group_of_tensor = {0, 1, 1};
  return input;
}

CombineOptions PerGroup() {
  CombineOptions options = MakeOptions("mean");
  options.step_scale.kind = StepScale::kAdascale;
  options.step_scale.gain_scope = GainScope::kPerGroup;
  options.step_scale.groups = {"", "g"};
  options.schedule.learning_rate = 0.5;
  return options;
}

TEST(DecideTest, EachGroupHasTheGainOfItsTensorsAlone) {
  const RoundInput input = GroupedRound(1);
  const Decision decision = Decide(PerGroup(), {}, input);
  ASSERT_EQ(decision.kind, DecisionKind::kApply);
  CombineOptions global = PerGroup();
  global.step_scale.gain_scope = GainScope::kGlobal;
  RoundInput part = input;
  part.tensors = {input.tensors[0]};
  const double first = Decide(global, {}, part).gain;
  part.tensors = {input.tensors[1], input.tensors[2]};
  const double second = Decide(global, {}, part).gain;
  EXPECT_GT(first, second + 1.0);
  EXPECT_EQ(decision.group_gains, (std::vector<double>{first, second}));
  EXPECT_EQ(decision.group_rates,
            (std::vector<double>{0.5 * first, 0.5 * second}));
  EXPECT_EQ(decision.tensors[0].gain, first);
  EXPECT_EQ(decision.tensors[1].gain, second);
  EXPECT_EQ(decision.tensors[2].gain, second);
  // Progress is of all groups.
  EXPECT_LT(decision.gain, first);
  EXPECT_GT(decision.gain, second);
  EXPECT_EQ(decision.tau, decision.gain);
  EXPECT_EQ(decision.learning_rate, 0.5 * decision.gain);
  // Globally there are no groups.
  const Decision model = Decide(global, {}, input);
  EXPECT_TRUE(model.group_rates.empty());
  EXPECT_TRUE(std::isnan(model.tensors[0].gain));
  EXPECT_EQ(model.coefficients, decision.coefficients);
}

TEST(DecideTest, GroupsSeeTheRowsThatAreLeftWithoutTheirLossScales) {
  RoundInput input = GroupedRound(1);
  const Decision expected = Decide(PerGroup(), {}, input);
  // Twice the rows, and one more that is not finite in one tensor.
  for (size_t t = 0; t < input.tensors.size(); ++t) {
    GramMatrix gram(5);
    for (int i = 0; i < 4; ++i) {
      for (int j = i; j < 4; ++j) gram.Set(i, j, 4.0 * input.tensors[t](i, j));
    }
    if (t == 1) gram.Set(4, 4, std::numeric_limits<double>::quiet_NaN());
    input.tensors[t] = gram;
  }
  for (RowInfo& row : input.rows) row.loss_scale = 2.0;
  input.rows.emplace_back();
  input.rows.back().rank = 4;
  const Decision decision = Decide(PerGroup(), {}, input);
  EXPECT_EQ(decision.excluded_ranks, std::vector<int32_t>{4});
  EXPECT_EQ(decision.group_gains, expected.group_gains);
  EXPECT_EQ(decision.gain, expected.gain);
}

TEST(DecideTest, ASkippedRoundChangesNoGroup) {
  const CombineOptions options = PerGroup();
  const CombineState state = Decide(options, {}, GroupedRound(1)).next_state;
  ASSERT_EQ(state.step_scale.groups.size(), 2u);
  RoundInput input = GroupedRound(2);
  for (int i = 0; i < 4; ++i) {
    input.tensors[2].Set(i, i, std::numeric_limits<double>::infinity());
  }
  const Decision decision = Decide(options, state, input);
  EXPECT_EQ(decision.kind, DecisionKind::kSkip);
  EXPECT_TRUE(decision.group_rates.empty());
  const StepScaleState& after = decision.next_state.step_scale;
  EXPECT_EQ(after.tau, state.step_scale.tau);
  EXPECT_EQ(after.groups[1].num_samples, 1);
  EXPECT_EQ(after.groups[1].variance, state.step_scale.groups[1].variance);
}

TEST(DecideTest, ARateOfOneGroupThatDoesNotFitSkipsTheRound) {
  CombineOptions options = PerGroup();
  const RoundInput input = GroupedRound(1);
  const Decision fits = Decide(options, {}, input);
  // Between the model's gain and that of the first group.
  options.schedule.learning_rate =
      static_cast<double>(std::numeric_limits<float>::max()) /
      (0.5 * (fits.gain + fits.group_gains[0]));
  const Decision decision = Decide(options, {}, input);
  EXPECT_EQ(decision.kind, DecisionKind::kSkip);
  EXPECT_THAT(decision.skip_reason, testing::HasSubstr("the learning rate "));
  EXPECT_EQ(decision.tau, 0.0);
}

TEST(DecideTest, ALaggedGainIsSaidTheRoundBefore) {
  CombineOptions options = MakeOptions("mean");
  options.step_scale.kind = StepScale::kAdascale;
  options.step_scale.averaging = Averaging::kLagged;
  CombineState state;
  double announced = 1.0;
  for (uint32_t round = 0; round < 4; ++round) {
    const Decision decision =
        DecideRows(options, state, {BiasedLcgRows(round, 4, 30, 0.3)});
    EXPECT_EQ(decision.gain, announced);
    announced = decision.next_gain;
    EXPECT_GT(announced, 1.0);
    state = decision.next_state;
    // A round without a row of use takes nothing of it.
    const Decision skipped = Decide(options, state, RoundInput());
    EXPECT_TRUE(std::isnan(skipped.next_gain));
    state = skipped.next_state;
  }
}

TEST(DecideTest, FinishesWhenTauReachesItsEnd) {
  CombineOptions options = MakeOptions("mean");
  options.scale_invariant_iterations = 3.0;
  const std::vector<Rows> tensors = {BiasedLcgRows(1, 4, 30, 0.01)};
  CombineState state;
  for (int round = 0; round < 3; ++round) {  // counts rounds
    const Decision decision = DecideRows(options, state, tensors);
    EXPECT_EQ(decision.finished, round == 2);
    state = decision.next_state;
  }
  options.step_scale.kind = StepScale::kAdascale;  // gain almost 4
  const Decision decision = DecideRows(options, {}, tensors);
  EXPECT_GE(decision.tau, 3.0);
  EXPECT_TRUE(decision.finished);
}

TEST(DecideTest, IsDeterministic) {
  const std::vector<Rows> tensors = {BiasedLcgRows(1, 32, 60, 0.3),
                                     BiasedLcgRows(2, 32, 60, 0.3)};
  const CombineOptions options = MakeOptions("adasum");
  const Decision first = DecideRows(options, {}, tensors);
  const Decision second = DecideRows(options, {}, tensors);
  EXPECT_EQ(first.coefficients, second.coefficients);
  EXPECT_EQ(first.combined_norm, second.combined_norm);
}

// Cancellation, degenerate rows and the state that rules carry: Decide of
// server/combine/decision.h.

Rows NearOpposite(uint64_t seed, double noise) {
  Rows rows = NormalRows(seed, 4, 500);
  for (size_t k = 0; k < rows[0].size(); ++k) {
    rows[1][k] = static_cast<float>(-rows[0][k] + noise * rows[1][k]);
  }
  return rows;
}

TEST(DecidePolicyTest, AsksForCompensatedGramsOfCancellingTensorsOnly) {
  const std::vector<Rows> tensors = {
      NormalRows(1, 4, 20), NearOpposite(2, 1e-6), NormalRows(3, 4, 20),
      NearOpposite(4, 1e-6)};
  RoundInput input = MakeRound(tensors);
  for (const char* rule : {"adasum", "adasum_counted"}) {
    const CombineOptions options = WithScope(rule, Scope::kPerTensor);
    const Decision ask = Decide(options, {}, input);
    EXPECT_EQ(ask.kind, DecisionKind::kNeedsCompensated);
    EXPECT_EQ(ask.compensate_tensors, (std::vector<int>{1, 3}));
    const Decision decision = DecideRows(options, {}, tensors);
    EXPECT_EQ(decision.kind, DecisionKind::kApply);
    EXPECT_TRUE(decision.compensated);
    EXPECT_FALSE(decision.tensors[0].compensated);
    EXPECT_TRUE(decision.tensors[1].compensated);
    EXPECT_GT(decision.tensors[1].kappa, 1e10);
    for (int t = 0; t < 4; ++t) {
      const reference::Vector expected =
          std::string(rule) == "adasum"
              ? reference::AdasumTree(tensors[t])
              : reference::AdasumCountedTree(tensors[t]);
      EXPECT_LE(Error(tensors[t], decision.coefficients[t], expected), 1e-9);
    }
  }
  // No other rule has the problem, and a higher limit accepts it.
  EXPECT_EQ(Decide(MakeOptions("mean"), {}, input).kind, DecisionKind::kApply);
  CombineOptions lenient = MakeOptions("adasum");
  lenient.rule.kappa_limit = 1e300;
  EXPECT_EQ(Decide(lenient, {}, input).kind, DecisionKind::kApply);
}

TEST(DecidePolicyTest, GlobalScopeAsksForAllTensors) {
  Rows first = NearOpposite(5, 1e-6);
  const Rows second = NearOpposite(6, 1e-6);
  const CombineOptions options = WithScope("adasum", Scope::kGlobal);
  const Decision ask = Decide(options, {}, MakeRound({first, second}));
  EXPECT_EQ(ask.kind, DecisionKind::kNeedsCompensated);
  EXPECT_EQ(ask.compensate_tensors, (std::vector<int>{0, 1}));
  const Decision decision = DecideRows(options, {}, {first, second});
  EXPECT_EQ(decision.kind, DecisionKind::kApply);
  EXPECT_TRUE(decision.compensated);
  const Rows model = Concatenate({first, second});
  EXPECT_LE(
      Error(model, decision.coefficients[0], reference::AdasumTree(model)),
      1e-9);
}

// Of the whole model: AdaCons' alphas are sums of inner products over rows that
// cancel.
TEST(DecidePolicyTest, AdaconsAsksForCompensatedGramsWhereRowsCancel) {
  Rows rows = NearOpposite(5, 1e-6);
  rows.resize(2);
  const CombineOptions options = MakeOptions("adacons");
  const Decision ask = Decide(options, {}, MakeRound({rows}));
  EXPECT_EQ(ask.kind, DecisionKind::kNeedsCompensated);
  EXPECT_EQ(ask.compensate_tensors, (std::vector<int>{0}));
  const Decision decision = DecideRows(options, {}, {rows});
  EXPECT_EQ(decision.kind, DecisionKind::kApply);
  EXPECT_TRUE(decision.compensated);
  EXPECT_FALSE(decision.adacons_fallback);
  reference::Vector momentum;
  const reference::AdaconsStep expected =
      reference::Adacons(rows, 0.99L, 1e-8L, reference::Rescale::kNone,
                         reference::Unsort::kScatter, &momentum);
  EXPECT_LE(Error(rows, decision.coefficients[0], expected.direction), 1e-9);
  ASSERT_EQ(decision.next_state.rule[0].values.size(), 2u);
  for (int k = 0; k < 2; ++k) {
    EXPECT_NEAR(decision.next_state.rule[0].values[k],
                static_cast<double>(momentum[k]),
                1e-15 * std::abs(static_cast<double>(momentum[k])));
  }
}

TEST(DecidePolicyTest, ExactOppositesAreCompensatedToTheSameResult) {
  const Rows rows = {{1, 2}, {-1, -2}};
  EXPECT_EQ(Decide(MakeOptions("adasum"), {}, MakeRound({rows})).kind,
            DecisionKind::kApply);  // the root is not an input
  const Rows four = {{1, 2}, {-1, -2}, {1, 0}, {0, 1}};
  const Decision decision = DecideRows(MakeOptions("adasum"), {}, {four});
  EXPECT_TRUE(decision.compensated);
  EXPECT_EQ(decision.tensors[0].kappa, kInfinity);
  EXPECT_LE(Error(four, decision.coefficients[0], reference::AdasumTree(four)),
            1e-15);
}

TEST(DecidePolicyTest, EmptyAndScalarTensors) {
  const std::vector<Rows> tensors = {
      Rows(3), {{1}, {2}, {-4}}, BiasedLcgRows(1, 3, 20, 1.0)};
  for (const char* rule : {"adasum", "unit_mean", "adacons"}) {
    const Decision decision =
        DecideRows(WithScope(rule, Scope::kPerTensor), {}, tensors);
    EXPECT_EQ(decision.kind, DecisionKind::kApply);
    ASSERT_EQ(decision.coefficients.size(), 3u);
    const double expected = std::string(rule) == "adasum"      ? 1.0
                            : std::string(rule) == "unit_mean" ? 0.0
                                                               : 1.0 / 3.0;
    EXPECT_EQ(decision.coefficients[0], std::vector<double>(3, expected));
    EXPECT_FALSE(decision.tensors[0].adacons_fallback);
    EXPECT_TRUE(std::isnan(decision.tensors[0].orthogonality));
    EXPECT_FALSE(std::isnan(decision.orthogonality));
  }
}

TEST(DecidePolicyTest, AllZeroGradientsAreFlaggedUnderGlobalScope) {
  const Rows zeros(3, {0, 0});
  const Decision decision = DecideRows(MakeOptions("adacons"), {}, {zeros});
  EXPECT_EQ(decision.kind, DecisionKind::kApply);
  EXPECT_TRUE(decision.adacons_fallback);
  EXPECT_EQ(decision.combined_norm, 0.0);
  EXPECT_TRUE(std::isnan(decision.orthogonality));
  EXPECT_TRUE(std::isnan(decision.gradient_diversity));
}

TEST(DecidePolicyTest, AdaconsGuardIsReported) {
  const Rows flip = {{10, 0}, {-1, 0}, {-1, 0}, {-1, 0}};
  for (const Scope scope : {Scope::kGlobal, Scope::kPerTensor}) {
    const Decision decision =
        DecideRows(WithScope("adacons", scope), {}, {flip});
    EXPECT_TRUE(decision.adacons_fallback);
    EXPECT_TRUE(decision.tensors[0].adacons_fallback);
    EXPECT_EQ(decision.coefficients[0], std::vector<double>(4, 0.25));
  }
}

TEST(DecidePolicyTest, AdaconsStateIsPerSegmentAndCarried) {
  const std::vector<Rows> first = {BiasedLcgRows(1, 3, 20, 1.0),
                                   BiasedLcgRows(2, 3, 20, 1.0)};
  const std::vector<Rows> second = {BiasedLcgRows(3, 3, 20, 1.0),
                                    BiasedLcgRows(4, 3, 20, 1.0)};
  const CombineOptions options = WithScope("adacons", Scope::kPerTensor);
  const CombineState state = DecideRows(options, {}, first).next_state;
  ASSERT_EQ(state.rule.size(), 2u);
  const Decision carried = DecideRows(options, state, second);
  const Decision fresh = DecideRows(options, {}, second);
  EXPECT_NE(carried.coefficients[1], fresh.coefficients[1]);
  // Membership change: fewer rows go on with the resampled momentum.
  const Decision fewer =
      DecideRows(options, state, {LcgRows(5, 2, 20), LcgRows(6, 2, 20)});
  EXPECT_EQ(fewer.kind, DecisionKind::kApply);
}

}  // namespace
}  // namespace agg
