#include "server/combine/outliers.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "server/combine/statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::SizeIs;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rows of these norms, of ranks 10, 11, ..; the first of two tensors has 16/25
// of the squares.
CompactedRound Round(const std::vector<double>& norms) {
  std::vector<RowInfo> rows(norms.size());
  GramMatrix first(static_cast<int>(norms.size()));
  GramMatrix second = first;
  for (size_t i = 0; i < norms.size(); ++i) {
    rows[i].rank = 10 + static_cast<int>(i);
    const int row = static_cast<int>(i);
    first.Set(row, row, 0.64 * norms[i] * norms[i]);
    second.Set(row, row, 0.36 * norms[i] * norms[i]);
  }
  return CompactRound(rows, {first, second});
}

CompactedRound Judged(const std::vector<double>& norms,
                      OutlierOptions options = {6.0}) {
  CompactedRound round = Round(norms);
  JudgeOutliers(options, &round);
  return round;
}

std::vector<int32_t> OutliersOf(const CompactedRound& round) {
  std::vector<int32_t> ranks;
  for (const OutlierRow& row : round.outliers.rows) ranks.push_back(row.rank);
  return ranks;
}

// Logarithms to the base 2: 0 1 1 2 2 3 3 4 10, median 2, MAD 1.
TEST(OutliersTest, CountsDeviationsOfTheLogarithms) {
  const std::vector<double> norms = {1, 2, 2, 4, 4, 8, 8, 16, 1024};
  EXPECT_THAT(OutliersOf(Judged(norms, {5.0})), ElementsAre(18));
  const CompactedRound round = Judged(norms, {8 / 1.4826 * 0.99});
  ASSERT_THAT(round.outliers.rows, SizeIs(1));
  EXPECT_EQ(round.outliers.rows[0].row, 8);
  EXPECT_DOUBLE_EQ(round.outliers.rows[0].norm, 1024);
  EXPECT_NEAR(round.outliers.rows[0].deviations, 8 / 1.4826, 1e-12);
  EXPECT_THAT(OutliersOf(Judged(norms, {8 / 1.4826 * 1.01})), IsEmpty());
}

TEST(OutliersTest, AnExcludedOneLeavesAllOfTheRound) {
  const CompactedRound round = Judged({1, 700, 1, 1.01, 0.99});
  EXPECT_TRUE(round.outliers.excluded);
  EXPECT_THAT(round.excluded_ranks, ElementsAre(11));
  EXPECT_THAT(round.kept, ElementsAre(0, 2, 3, 4));
  EXPECT_EQ(round.num_rows(), 4);
  EXPECT_THAT(round.rows, SizeIs(4));
  EXPECT_EQ(round.rows[1].rank, 12);
  EXPECT_THAT(round.scales, SizeIs(4));
  EXPECT_THAT(round.examples, SizeIs(4));
  EXPECT_EQ(round.num_committed, 5u);
  for (const GramMatrix& gram : round.tensors) EXPECT_EQ(gram.num_rows(), 4);
  EXPECT_NEAR(round.total.Trace(), 1 + 1 + 1.01 * 1.01 + 0.99 * 0.99, 1e-12);
}

TEST(OutliersTest, AWarningChangesNothingElse) {
  const CompactedRound round =
      Judged({1, 700, 1, 1.01, 0.99}, {6.0, OutlierAction::kWarn});
  EXPECT_THAT(OutliersOf(round), ElementsAre(11));
  EXPECT_FALSE(round.outliers.excluded);
  EXPECT_THAT(round.excluded_ranks, IsEmpty());
  EXPECT_EQ(round.num_rows(), 5);
}

// Where half of the norms are equal, MAD is 0, and anything would be far off.
TEST(OutliersTest, ADeviationIsAtLeastFivePercent) {
  const double edge = std::exp(6 * kLeastDeviation);  // 1.35
  EXPECT_THAT(OutliersOf(Judged({3, 3, 3, 3, 3 * edge * 0.99})), IsEmpty());
  EXPECT_THAT(OutliersOf(Judged({3, 3, 3, 3, 3 * edge * 1.01})),
              ElementsAre(14));
  EXPECT_THAT(OutliersOf(Judged({3, 3, 3, 3, 3 / edge * 0.99})),
              ElementsAre(14));
}

TEST(OutliersTest, ZeroRowsNeitherCountNorAreOutliers) {
  EXPECT_THAT(OutliersOf(Judged({1, 1, 1, 1, 0})), IsEmpty());
  EXPECT_THAT(OutliersOf(Judged({0, 0, 0, 0, 0, 0, 1, 1, 1, 50})),
              ElementsAre(19));
  const CompactedRound few = Judged({0, 0, 0, 0, 1, 1, 50});
  EXPECT_THAT(OutliersOf(few), IsEmpty());
  EXPECT_TRUE(few.outliers.too_few_rows);
}

TEST(OutliersTest, FewerThanFourRowsAreNotJudged) {
  EXPECT_TRUE(Judged({1, 1, 1000}).outliers.too_few_rows);
  EXPECT_THAT(OutliersOf(Judged({1, 1, 1000})), IsEmpty());
  EXPECT_FALSE(Judged({1, 1, 1, 1000}).outliers.too_few_rows);
  EXPECT_THAT(OutliersOf(Judged({1, 1, 1, 1000})), ElementsAre(13));
  EXPECT_FALSE(Judged({}).outliers.too_few_rows);
}

TEST(OutliersTest, RowsThatAreNotFiniteAreOutBefore) {
  const CompactedRound round = Judged({1, kNan, 1, 900, 1, kInfinity, 1});
  EXPECT_THAT(round.excluded_ranks, ElementsAre(11, 13, 15));
  EXPECT_THAT(OutliersOf(round), ElementsAre(13));
}

// Both of its tensors are finite, and their sum is not: a median of two such
// rows and two others is of no use.
TEST(OutliersTest, RowsWhoseNormOverflowsAreOutBefore) {
  GramMatrix half(6);
  for (int i = 0; i < 6; ++i) half.Set(i, i, i < 3 ? 1.0 : 1e308);
  for (int i = 3; i < 6; ++i) {
    for (int j = i; j < 6; ++j) half.Set(i, j, 1e308);
  }
  CompactedRound round = CompactRound(std::vector<RowInfo>(6), {half, half});
  JudgeOutliers({6.0}, &round);
  EXPECT_THAT(OutliersOf(round), IsEmpty());
  EXPECT_TRUE(round.outliers.too_few_rows);
  EXPECT_THAT(round.kept, ElementsAre(0, 1, 2));
}

TEST(OutliersTest, OffIsOff) {
  const CompactedRound round = Judged({1, 1, 1, 1, 1e9}, {});
  EXPECT_THAT(OutliersOf(round), IsEmpty());
  EXPECT_FALSE(Judged({1, 1}, {}).outliers.too_few_rows);
}

// However the norms lie, at least half of the rows stay.
TEST(OutliersTest, HalfOfTheRowsStay) {
  std::mt19937_64 engine(1);
  std::cauchy_distribution<double> logarithm;
  for (int k = 0; k < 300; ++k) {
    std::vector<double> norms(4 + k % 13);
    for (double& norm : norms) {
      norm = std::exp(std::fmax(-50, std::fmin(50, logarithm(engine))));
    }
    const CompactedRound round = Judged(norms, {1.0});
    EXPECT_GE(2 * round.num_rows(), static_cast<int>(norms.size()));
  }
}

// The table of server/combine/README.md 14: the share of rounds of equal
// workers, with norms whose logarithms are normally distributed, that lose a
// row.
TEST(OutliersTest, HealthyRoundsSeldomLoseARow) {
  constexpr int kRounds = 20000;
  std::mt19937_64 engine(1);
  std::normal_distribution<double> logarithm;
  const std::pair<int, double> most[] = {
      {4, 0.08}, {5, 0.09}, {8, 0.04}, {16, 0.01}, {32, 0.002}};
  for (const auto& [num_rows, share] : most) {
    int lost = 0;
    for (int k = 0; k < kRounds; ++k) {
      std::vector<double> norms(num_rows);
      for (double& norm : norms) norm = std::exp(logarithm(engine));
      lost += Judged(norms).outliers.rows.empty() ? 0 : 1;
    }
    std::printf("%d rows: %.2f%%\n", num_rows, 100.0 * lost / kRounds);
    EXPECT_LT(lost, share * kRounds) << num_rows;
    EXPECT_GT(lost, 0.1 * share * kRounds) << num_rows;
  }
}

// --- In a decision -----------------------------------------------------------

std::vector<Rows> Garbage() {
  Rows rows = BiasedLcgRows(7, 6, 40, 1.0);
  for (double& value : rows[2]) value *= -100.0;
  return {rows, BiasedLcgRows(8, 6, 30, 1.0)};
}

std::vector<Rows> Without(std::vector<Rows> tensors, int row) {
  for (Rows& rows : tensors) rows.erase(rows.begin() + row);
  return tensors;
}

CombineOptions Options(const std::string& rule) {
  CombineOptions options = MakeOptions(rule);
  options.outliers.max_deviations = 6.0;
  options.shadow_rules = {MakeOptions("adacons").rule};
  return options;
}

// The round is the one in which the outlier never was: coefficients, AdaScale's
// estimates and averages, AdaCons' momentum, shadow rules, statistics.
TEST(OutliersTest, NothingOfAnOutlierIsLeft) {
  for (const char* rule : {"mean", "adasum", "adacons", "krum"}) {
    CombineOptions options = Options(rule);
    if (options.rule.rule->Has(kIsMean)) {
      options.step_scale.kind = StepScale::kAdascale;
    }
    const Decision with = DecideRows(options, {}, Garbage());
    const Decision without = DecideRows(options, {}, Without(Garbage(), 2));
    EXPECT_THAT(with.excluded_ranks, ElementsAre(2)) << rule;
    EXPECT_THAT(without.excluded_ranks, IsEmpty());
    ASSERT_EQ(with.coefficients.size(), without.coefficients.size());
    for (size_t s = 0; s < with.coefficients.size(); ++s) {
      std::vector<double> left = with.coefficients[s];
      EXPECT_EQ(left[2], 0.0);
      left.erase(left.begin() + 2);
      EXPECT_EQ(left, without.coefficients[s]) << rule;
    }
    EXPECT_EQ(with.gain, without.gain);
    EXPECT_EQ(with.tau, without.tau);
    EXPECT_EQ(with.next_state.step_scale.variance,
              without.next_state.step_scale.variance);
    ASSERT_EQ(with.next_state.rule.size(), without.next_state.rule.size());
    for (size_t s = 0; s < with.next_state.rule.size(); ++s) {
      EXPECT_EQ(with.next_state.rule[s].values,
                without.next_state.rule[s].values);
    }
  }
}

TEST(OutliersTest, ShadowRulesDoNotSeeItAndItsNormIsReported) {
  const CombineOptions options = Options("mean");
  const Decision with = DecideRows(options, {}, Garbage());
  const Decision without = DecideRows(options, {}, Without(Garbage(), 2));
  CombineState next;
  const RoundStatistics statistics =
      ComputeStatistics(options, {}, MakeRound(Garbage()), with, &next);
  const RoundStatistics expected = ComputeStatistics(
      options, {}, MakeRound(Without(Garbage(), 2)), without, &next);
  EXPECT_EQ(statistics.shadows[0].norm, expected.shadows[0].norm);
  EXPECT_EQ(statistics.mean_pairwise_cosine, expected.mean_pairwise_cosine);
  EXPECT_EQ(statistics.row_coefficients[2], 0.0);
  EXPECT_DOUBLE_EQ(statistics.row_norms[2], with.outliers.rows[0].norm);
  EXPECT_GT(statistics.row_norms[2], 50 * statistics.row_norms[1]);
}

TEST(OutliersTest, AWarningIsInTheDecision) {
  CombineOptions options = Options("mean");
  options.outliers.action = OutlierAction::kWarn;
  const Decision warned = DecideRows(options, {}, Garbage());
  options.outliers = {};
  const Decision off = DecideRows(options, {}, Garbage());
  EXPECT_THAT(warned.excluded_ranks, IsEmpty());
  EXPECT_EQ(warned.outliers.rows[0].rank, 2);
  EXPECT_EQ(warned.coefficients, off.coefficients);
}

// Its Gram matrices come again, compensated, of all rows that are present.
TEST(OutliersTest, StaysOutWhenMatricesAreReplaced) {
  std::vector<Rows> tensors = Garbage();
  CompactedRound round = CompactRound(
      MakeRound(tensors).rows, {MakeGram(tensors[0]), MakeGram(tensors[1])});
  JudgeOutliers({6.0}, &round);
  const std::vector<int> present = {0, 1, 2, 3, 4, 5};
  ReplaceTensors(present, {0}, {MakeCompensatedGram(tensors[0])}, &round);
  EXPECT_EQ(round.tensors[0].num_rows(), 5);
  EXPECT_TRUE(round.tensors[0].compensated());
  EXPECT_EQ(round.total.num_rows(), 5);
}

TEST(MedianTest, TheMiddleOrBetweenTheMiddleTwo) {
  EXPECT_EQ(Median<double>({7}), 7);
  EXPECT_EQ(Median<double>({9, 1, 4}), 4);
  EXPECT_EQ(Median<double>({9, 1, 4, 6}), 5);
  EXPECT_EQ(Median<double>({-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(Median<double>({-kInfinity, 2, kInfinity}), 2);
}

// Median 4, distances 3 0 2 2 16, MAD 2.
TEST(RobustDeviationsTest, DividesByTheMedianDistanceOrTheLeast) {
  const double mad = 1.4826 * 2;
  EXPECT_THAT(RobustDeviations({1, 4, 2, 6, 20}, 0),
              ElementsAre(DoubleEq(3 / mad), 0, DoubleEq(2 / mad),
                          DoubleEq(2 / mad), DoubleEq(16 / mad)));
  EXPECT_THAT(RobustDeviations({1, 4, 2, 6, 20}, 4),
              ElementsAre(0.75, 0, 0.5, 0.5, 4));
}

TEST(RobustDeviationsTest, TheMedianHasZeroWhateverTheDivisor) {
  EXPECT_THAT(RobustDeviations({3, 3, 3, 5}, 0),
              ElementsAre(0, 0, 0, kInfinity));
  EXPECT_THAT(RobustDeviations({7}, 0), ElementsAre(0));
  EXPECT_THAT(RobustDeviations({-kInfinity, -kInfinity, -kInfinity, 5}, 0),
              ElementsAre(0, 0, 0, kInfinity));
  EXPECT_THAT(RobustDeviations({-kInfinity, 1, 2, 3, 4}, 0.5),
              ElementsAre(kInfinity, DoubleEq(1 / 1.4826), 0,
                          DoubleEq(1 / 1.4826), DoubleEq(2 / 1.4826)));
}

// Half of the values are infinite: there is no scale to measure them by.
TEST(RobustDeviationsTest, InfinitiesOverInfinityAreUndefined) {
  const std::vector<double> deviations =
      RobustDeviations({-kInfinity, -kInfinity, 2, 3}, 0);
  EXPECT_EQ(deviations[0], 0);
  EXPECT_THAT(std::vector<double>(deviations.begin() + 2, deviations.end()),
              Each(IsNan()));
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EqualRowsTest, FindsGroups) {
  Rows rows = NormalRows(1, 6, 50);
  EXPECT_THAT(EqualRows(MakeGram(rows)), IsEmpty());
  rows[4] = rows[1];
  rows[5] = rows[2];
  rows[0] = rows[1];
  EXPECT_THAT(EqualRows(MakeGram(rows)),
              ElementsAre(ElementsAre(0, 1, 4), ElementsAre(2, 5)));
}

TEST(EqualRowsTest, NearlyIsEnoughAtAnyLength) {
  for (const double length : {1e-40, 1.0, 1e30}) {
    Rows rows = NormalRows(2, 2, 400);
    for (int k = 0; k < 400; ++k) {
      rows[0][k] *= length;
      rows[1][k] = rows[0][k] * (k % 2 == 0 ? 1.001 : 0.999);
    }
    EXPECT_THAT(EqualRows(MakeGram(rows)), ElementsAre(ElementsAre(0, 1)));
    for (int k = 0; k < 400; ++k) {
      rows[1][k] = rows[0][k] * (k % 2 == 0 ? 1.01 : 0.99);
    }
    EXPECT_THAT(EqualRows(MakeGram(rows)), IsEmpty());
  }
}

TEST(EqualRowsTest, OppositeParallelAndZeroRowsAreNotEqual) {
  EXPECT_THAT(EqualRows(MakeGram({{1, 2}, {-1, -2}, {2, 4}, {0, 0}, {0, 0}})),
              IsEmpty());
  EXPECT_THAT(EqualRows(MakeGram({{1, 2}})), IsEmpty());
  EXPECT_THAT(EqualRows(GramMatrix()), IsEmpty());
}

}  // namespace
}  // namespace agg
