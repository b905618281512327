#include "server/combine/statistics.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/reference/combination_rules.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Decides and takes statistics of one round; *state advances.
RoundStatistics RunRound(const CombineOptions& options, const RoundInput& input,
                         CombineState* state, Decision* decision) {
  *decision = Decide(options, *state, input);
  CombineState next = decision->next_state;
  const RoundStatistics statistics =
      ComputeStatistics(options, *state, input, *decision, &next);
  *state = next;
  return statistics;
}

RoundStatistics RunOnce(const CombineOptions& options,
                        const RoundInput& input) {
  CombineState state;
  Decision decision;
  return RunRound(options, input, &state, &decision);
}

double Cosine(const reference::Vector& a, const reference::Vector& b) {
  return static_cast<double>(reference::Dot(a, b) /
                             (reference::Norm(a) * reference::Norm(b)));
}

TEST(StatisticsTest, RowsNormsAndCosines) {
  const Rows rows = BiasedLcgRows(1, 5, 30, 0.5);
  RoundInput input = MakeRound({rows});
  const RoundStatistics statistics = RunOnce(MakeOptions("mean"), input);
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(
        statistics.row_norms[i],
        static_cast<double>(reference::Norm(reference::ToVector(rows[i]))),
        1e-13);
  }
  EXPECT_NEAR(statistics.mean_pairwise_cosine,
              static_cast<double>(reference::MeanPairwiseCosine(rows)), 1e-14);
  EXPECT_LE(statistics.min_pairwise_cosine, statistics.mean_pairwise_cosine);
  EXPECT_GT(statistics.effective_rank, 1.0);
  EXPECT_LT(statistics.effective_rank, 5.0);
  EXPECT_EQ(statistics.row_coefficients, std::vector<double>(5, 0.2));
  EXPECT_NEAR(statistics.coefficient_sum, 1.0, 1e-15);
}

TEST(StatisticsTest, MatricesAreThoseOfTheGradients) {
  const Rows rows = BiasedLcgRows(1, 4, 30, 0.5);
  Rows pushed = rows;
  for (double& value : pushed[0]) value *= 8;
  pushed[1][4] = kNan;
  pushed[3].assign(30, 0.0);
  RoundInput input = MakeRound({pushed});
  input.rows[0].loss_scale = 8;
  const RoundStatistics statistics = RunOnce(MakeOptions("mean"), input);
  const reference::Vector a = reference::ToVector(rows[0]);
  const reference::Vector c = reference::ToVector(rows[2]);
  // (0,0) (0,1) (0,2) (0,3) (1,1) (1,2) (1,3) (2,2) (2,3) (3,3)
  ASSERT_EQ(statistics.gram.size(), 10u);
  ASSERT_EQ(statistics.cosines.size(), 10u);
  EXPECT_NEAR(statistics.gram[0], static_cast<double>(reference::Dot(a, a)),
              1e-12);
  EXPECT_NEAR(statistics.gram[2], static_cast<double>(reference::Dot(a, c)),
              1e-12);
  EXPECT_NEAR(statistics.cosines[2], Cosine(a, c), 1e-14);
  EXPECT_NEAR(statistics.cosines[7], 1.0, 1e-14);
  for (const int excluded : {1, 4, 5, 6}) {
    EXPECT_TRUE(std::isnan(statistics.gram[excluded])) << excluded;
    EXPECT_TRUE(std::isnan(statistics.cosines[excluded])) << excluded;
  }
  for (const int zero : {3, 8, 9}) {
    EXPECT_EQ(statistics.gram[zero], 0.0) << zero;
    EXPECT_TRUE(std::isnan(statistics.cosines[zero])) << zero;
  }
}

TEST(StatisticsTest, MatricesHaveALimit) {
  const Rows rows = BiasedLcgRows(1, kMaxMatrixRows + 2, 5, 0.5);
  const RoundStatistics statistics =
      RunOnce(MakeOptions("mean"), MakeRound({rows}));
  EXPECT_EQ(statistics.gram.size(),
            size_t{kMaxMatrixRows} * (kMaxMatrixRows + 1) / 2);
  EXPECT_EQ(statistics.cosines.size(), statistics.gram.size());
  EXPECT_EQ(statistics.row_norms.size(), size_t{kMaxMatrixRows} + 2);
}

TEST(TensorGramsTest, AreThoseOfTheGradientsOneBehindTheOther) {
  const std::vector<Rows> tensors = {BiasedLcgRows(1, 3, 30, 0.5),
                                     BiasedLcgRows(2, 3, 7, 0.5)};
  std::vector<Rows> pushed = tensors;
  for (Rows& rows : pushed) {
    for (double& value : rows[0]) value *= 8;
  }
  pushed[1][1][4] = kNan;
  RoundInput input = MakeRound(pushed);
  input.rows[0].loss_scale = 8;
  const std::vector<double> grams =
      TensorGrams(CompactRound(input.rows, input.tensors));
  // Of each: (0,0) (0,1) (0,2) (1,1) (1,2) (2,2)
  ASSERT_EQ(grams.size(), 12u);
  for (size_t t = 0; t < 2; ++t) {
    const reference::Vector a = reference::ToVector(tensors[t][0]);
    const reference::Vector c = reference::ToVector(tensors[t][2]);
    EXPECT_NEAR(grams[6 * t], static_cast<double>(reference::Dot(a, a)), 1e-12);
    EXPECT_NEAR(grams[6 * t + 2], static_cast<double>(reference::Dot(a, c)),
                1e-12);
    EXPECT_NEAR(grams[6 * t + 5], static_cast<double>(reference::Dot(c, c)),
                1e-12);
    for (const size_t excluded : {1, 3, 4}) {
      EXPECT_TRUE(std::isnan(grams[6 * t + excluded])) << excluded;
    }
  }
}

TEST(TensorGramsTest, HaveAsManyRowsAsFit) {
  const auto size = [](size_t num_tensors, int num_rows) {
    const RoundInput input = MakeRound(
        std::vector<Rows>(num_tensors, BiasedLcgRows(1, num_rows, 2, 0.5)));
    return TensorGrams(CompactRound(input.rows, input.tensors)).size();
  };
  EXPECT_EQ(size(1, kMaxMatrixRows + 1), size_t{64} * 65 / 2);
  // 2^17 / 3000 = 43.7: 8 rows have 36 entries, 9 have 45.
  EXPECT_EQ(size(3000, 12), size_t{3000} * 36);
  EXPECT_EQ(size(3000, 8), size_t{3000} * 36);
  EXPECT_EQ(size(kMaxTensorGramEntries + 1, 1), 0u);
}

TEST(StatisticsTest, TheNormOfATensorIsOfTheRowsThatCount) {
  const Rows rows = BiasedLcgRows(1, 3, 30, 0.5);
  Rows pushed = rows;
  for (double& value : pushed[0]) value *= 8;
  pushed[1][4] = kNan;
  RoundInput input = MakeRound({pushed});
  input.rows[0].loss_scale = 8;
  const Decision decision = Decide(MakeOptions("mean"), {}, input);
  const reference::Vector a = reference::ToVector(rows[0]);
  const reference::Vector c = reference::ToVector(rows[2]);
  EXPECT_NEAR(
      decision.tensors[0].row_norm,
      std::sqrt(
          static_cast<double>(reference::Dot(a, a) + reference::Dot(c, c)) / 2),
      1e-13);
}

TEST(StatisticsTest, LossScaleIsRemovedAndExcludedRowsAreNan) {
  const Rows rows = BiasedLcgRows(1, 3, 30, 0.5);
  Rows pushed = rows;
  for (double& value : pushed[0]) value *= 8;
  pushed[1][4] = kNan;
  RoundInput input = MakeRound({pushed});
  input.rows[0].loss_scale = 8;
  const RoundStatistics statistics = RunOnce(MakeOptions("mean"), input);
  EXPECT_NEAR(
      statistics.row_norms[0],
      static_cast<double>(reference::Norm(reference::ToVector(rows[0]))),
      1e-13);
  EXPECT_TRUE(std::isnan(statistics.row_norms[1]));
  EXPECT_TRUE(std::isnan(statistics.mean_cosines[1]));
  EXPECT_EQ(statistics.row_coefficients, (std::vector<double>{0.5, 0.0, 0.5}));
}

TEST(StatisticsTest, NoiseScaleInExamples) {
  const Rows rows = BiasedLcgRows(2, 4, 50, 0.5);
  RoundInput input = MakeRound({rows});
  for (RowInfo& row : input.rows) row.examples = 16;
  CombineState state;
  Decision decision;
  const RoundStatistics statistics =
      RunRound(MakeOptions("mean"), input, &state, &decision);
  EXPECT_NEAR(statistics.gradient_noise_scale,
              16 * decision.sigma2_mean / decision.mu2_mean, 1e-11);
  // In examples: the same batches counted in other units give the same.
  CombineOptions units = MakeOptions("mean");
  units.step_scale.baseline_examples = 4;
  units.step_scale.smoothing = 0.5;
  EXPECT_NEAR(RunOnce(units, input).gradient_noise_scale,
              statistics.gradient_noise_scale, 1e-10);
  // All noise: undefined.
  EXPECT_TRUE(
      std::isnan(RunOnce(MakeOptions("mean"), MakeRound({{{1, 0}, {-1, 0}}}))
                     .gradient_noise_scale));
}

TEST(StatisticsTest, MaxKappaIncludesTheAppliedGlobalSegment) {
  // Tensors report plain Adasum's kappa under global scope; counted, the first
  // three rows almost cancel (the mean of 1, 1, -2), plain they do not.
  const Rows rows = {{1, 0}, {1, 0}, {-2, 0.1}, {0, 0}, {0, 1}};
  CombineOptions options = MakeOptions("adasum_counted");
  options.rule.scope = Scope::kGlobal;
  CombineState state;
  Decision decision;
  const RoundStatistics statistics =
      RunRound(options, MakeRound({rows}), &state, &decision);
  EXPECT_LT(decision.tensors[0].kappa, 100.0);
  EXPECT_GT(statistics.max_kappa, 500.0);
  options.rule.scope = Scope::kPerTensor;
  const RoundStatistics per_tensor =
      RunRound(options, MakeRound({rows}), &state, &decision);
  EXPECT_EQ(per_tensor.max_kappa, decision.tensors[0].kappa);
  EXPECT_EQ(per_tensor.max_kappa, statistics.max_kappa);
}

TEST(StatisticsTest, ShadowRulesMatchVectorsAcrossScopes) {
  const std::vector<Rows> tensors = {BiasedLcgRows(3, 5, 30, 0.3),
                                     BiasedLcgRows(4, 5, 12, 1.0)};
  CombineOptions options = MakeOptions("mean");
  options.clip_norm = 0.1;  // of the applied rule; cosines do not mind
  for (const Scope scope : {Scope::kPerTensor, Scope::kGlobal}) {
    RuleOptions shadow;
    shadow.rule = FindRule("adasum");
    shadow.scope = scope;
    options.shadow_rules.push_back(shadow);
  }
  const RoundStatistics statistics = RunOnce(options, MakeRound(tensors));
  ASSERT_EQ(statistics.shadows.size(), 2u);
  Rows model = tensors[0];
  for (int i = 0; i < 5; ++i) {
    model[i].insert(model[i].end(), tensors[1][i].begin(), tensors[1][i].end());
  }
  const reference::Vector mean = reference::Mean(model);
  reference::Vector per_tensor = reference::AdasumTree(tensors[0]);
  const reference::Vector second = reference::AdasumTree(tensors[1]);
  per_tensor.insert(per_tensor.end(), second.begin(), second.end());
  EXPECT_TRUE(statistics.shadows[0].coefficients.empty());
  EXPECT_NEAR(statistics.shadows[0].norm,
              static_cast<double>(reference::Norm(per_tensor)), 1e-13);
  EXPECT_NEAR(statistics.shadows[0].cosine, Cosine(mean, per_tensor), 1e-13);
  const reference::Vector global = reference::AdasumTree(model);
  EXPECT_NEAR(statistics.shadows[1].norm,
              static_cast<double>(reference::Norm(global)), 1e-13);
  EXPECT_NEAR(statistics.shadows[1].cosine, Cosine(mean, global), 1e-13);
  EXPECT_EQ(statistics.shadows[1].coefficients.size(), 5u);
}

TEST(StatisticsTest, AShadowOfTheAppliedRuleIsTheAppliedRule) {
  RoundInput input = MakeRound({BiasedLcgRows(5, 4, 30, 0.3)});
  for (int i = 0; i < 4; ++i) input.rows[i].loss_scale = 2.0;
  CombineOptions options = MakeOptions("adasum");
  options.shadow_rules = {options.rule};
  options.shadow_rules[0].scope = Scope::kGlobal;
  CombineState state;
  Decision decision;
  const RoundStatistics statistics =
      RunRound(options, input, &state, &decision);
  EXPECT_NEAR(statistics.shadows[0].cosine, 1.0, 1e-14);
  EXPECT_NEAR(statistics.shadows[0].norm, decision.combined_norm, 1e-13);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(statistics.shadows[0].coefficients[i],
                decision.coefficients[0][i] * 2.0, 1e-14);
  }
}

TEST(StatisticsTest, ShadowMomentumIsItsOwn) {
  CombineOptions options = MakeOptions("mean");
  RuleOptions shadow;
  shadow.rule = FindRule("adacons");
  shadow.scope = Scope::kGlobal;
  options.shadow_rules = {shadow};
  CombineState state;
  Decision decision;
  reference::Vector momentum;
  for (int round = 0; round < 3; ++round) {
    const Rows rows = BiasedLcgRows(6 + round, 5, 30, 0.5);
    const RoundStatistics statistics =
        RunRound(options, MakeRound({rows}), &state, &decision);
    const reference::AdaconsStep expected =
        reference::Adacons(rows, 0.99L, 1e-8L, reference::Rescale::kNone,
                           reference::Unsort::kScatter, &momentum);
    EXPECT_NEAR(statistics.shadows[0].norm,
                static_cast<double>(reference::Norm(expected.direction)),
                1e-13);
    EXPECT_NEAR(statistics.shadows[0].cosine,
                Cosine(reference::Mean(rows), expected.direction), 1e-13);
  }
  EXPECT_TRUE(state.rule.empty());
  ASSERT_EQ(state.shadow_rules.size(), 1u);
}

TEST(StatisticsTest, ASkippedRoundHasNoShadowsAndKeepsTheirState) {
  CombineOptions options = MakeOptions("mean");
  RuleOptions shadow;
  shadow.rule = FindRule("adacons");
  shadow.scope = Scope::kGlobal;
  options.shadow_rules = {shadow};
  CombineState state;
  Decision decision;
  RunRound(options, MakeRound({BiasedLcgRows(6, 2, 30, 0.5)}), &state,
           &decision);
  const std::vector<double> before = state.shadow_rules[0][0].values;
  const RoundStatistics statistics =
      RunRound(options, MakeRound({{{kNan}, {kNan}}}), &state, &decision);
  EXPECT_EQ(decision.kind, DecisionKind::kSkip);
  EXPECT_TRUE(statistics.shadows.empty());
  EXPECT_TRUE(std::isnan(statistics.effective_rank));
  EXPECT_TRUE(std::isnan(statistics.coefficient_sum));
  EXPECT_EQ(state.shadow_rules[0][0].values, before);
}

TEST(StatisticsTest, ZeroResultsHaveNoCosine) {
  CombineOptions options = MakeOptions("mean");
  options.shadow_rules = {RuleOptions()};
  const RoundStatistics statistics =
      RunOnce(options, MakeRound({{{1, 2}, {-1, -2}}}));
  EXPECT_TRUE(std::isnan(statistics.shadows[0].cosine));
  EXPECT_EQ(statistics.shadows[0].norm, 0.0);
  EXPECT_NEAR(statistics.min_pairwise_cosine, -1.0, 1e-15);
}

}  // namespace
}  // namespace agg
