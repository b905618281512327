// Cancellation, degenerate rows and the state that rules carry: Decide of
// server/combine/decision.h.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/combine/decision.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

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
