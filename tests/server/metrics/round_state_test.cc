#include "server/metrics/round_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"

namespace agg {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::Not;

std::vector<std::string> Names(const TensorSelection& selection) {
  std::vector<std::string> names;
  for (const auto& tensor : selection.tensors) names.push_back(tensor.name);
  return names;
}

RoundReport Report(const std::vector<int32_t>& ranks) {
  RoundReport report;
  report.applied = true;
  for (const int32_t rank : ranks) {
    ReportedRow row;
    row.rank = rank;
    row.examples = 10 * (rank + 1);
    report.rows.push_back(row);
    report.statistics.row_coefficients.push_back(100.0 + rank);
    report.statistics.row_norms.push_back(200.0 + rank);
  }
  return report;
}

// The gauge of the round number that is called `name`.
double Number(const RoundState& state, absl::string_view name) {
  for (size_t i = 0; i < RoundNumbers().size(); ++i) {
    if (RoundNumbers()[i].name == name) return state.gauges.numbers.at(i);
  }
  ADD_FAILURE() << "no number " << name;
  return -12345.0;
}

constexpr absl::Time kNow = absl::FromUnixMillis(1500);

TEST(SelectTensorsTest, KeepsTheLargestInManifestOrder) {
  const TensorSelection selection = SelectTensors(
      {{"bias", 10}, {"conv", 500}, {"head", 90}, {"embedding", 7000}}, 2);
  EXPECT_THAT(Names(selection), ElementsAre("conv", "embedding"));
  EXPECT_EQ(selection.tensors[0].index, 1u);
  EXPECT_EQ(selection.tensors[1].index, 3u);
  EXPECT_EQ(selection.num_tensors, 4u);
}

TEST(SelectTensorsTest, PrefersTheEarlierAmongEquals) {
  EXPECT_THAT(Names(SelectTensors({{"a", 5}, {"b", 9}, {"c", 5}, {"d", 5}}, 3)),
              ElementsAre("a", "b", "c"));
}

TEST(SelectTensorsTest, TakesAllBelowTheCapAndNoneAtZero) {
  EXPECT_THAT(Names(SelectTensors({{"a", 0}, {"b", 1}}, 5)),
              ElementsAre("a", "b"));
  EXPECT_THAT(Names(SelectTensors({{"a", 0}, {"b", 1}}, 0)), IsEmpty());
  EXPECT_THAT(Names(SelectTensors({{"a", 0}}, -1)), IsEmpty());
}

TEST(SelectTensorsTest, NamesStayUniqueWhenBytesAreEscaped) {
  EXPECT_THAT(Names(SelectTensors({{"w\xFE", 5}, {"w\xFF", 9}}, 5)),
              ElementsAre("w\\xfe", "w\\xff"));
  // A name that is what another one is shown as.
  EXPECT_THAT(Names(SelectTensors({{"w\xFE", 5}, {"w\\xfe", 9}}, 5)),
              ElementsAre("w\\xfe"));
}

TEST(RoundStateTest, StartsWithTheExpectedWorkersBelowTheCap) {
  MetricsOptions options;
  options.workers = 5;
  options.max_workers = 3;
  const RoundState state = InitialRoundState(options);
  ASSERT_EQ(state.gauges.workers.size(), 3u);
  EXPECT_EQ(state.gauges.workers[2].rank, 2);
  EXPECT_TRUE(std::isnan(state.gauges.workers[2].coefficient));
  EXPECT_THAT(state.excluded_by_rank, ElementsAre(0, 0, 0));
  EXPECT_TRUE(std::isnan(Number(state, "gain")));
  EXPECT_EQ(Number(state, "tau"), 0.0);
}

TEST(RoundStateTest, ShowsTheRowsOfTheRoundThatAreBelowTheCap) {
  MetricsOptions options;
  options.max_workers = 8;
  const RoundState state = NextRoundState(options, InitialRoundState(options),
                                          Report({2, 7, 8, 40}), kNow);
  ASSERT_EQ(state.gauges.workers.size(), 2u);
  EXPECT_EQ(state.gauges.workers[0].rank, 2);
  EXPECT_EQ(state.gauges.workers[1].rank, 7);
  EXPECT_EQ(state.gauges.workers[1].coefficient, 107.0);
  EXPECT_EQ(state.gauges.workers[1].gradient_norm, 207.0);
  // The report had no cosines.
  EXPECT_TRUE(std::isnan(state.gauges.workers[1].mean_cosine));
  EXPECT_EQ(Number(state, "num_rows"), 4.0);
}

TEST(RoundStateTest, CountsExamplesOfRowsThatWereUsed) {
  const MetricsOptions options;
  RoundReport report = Report({0, 1, 2});
  report.decision.excluded_ranks = {1};
  const RoundState state =
      NextRoundState(options, InitialRoundState(options), report, kNow);
  EXPECT_EQ(state.examples, 10u + 30u);
  EXPECT_EQ(state.excluded_rows, 1u);
  EXPECT_THAT(state.excluded_by_rank, ElementsAre(0, 1));
}

// They have totals of their own, so that an alert can tell them from rows that
// are not finite.
TEST(RoundStateTest, CountsOutliersApart) {
  const MetricsOptions options;
  RoundReport report = Report({0, 1, 2});
  report.decision.excluded_ranks = {0, 1};
  report.decision.outliers.rows = {{1, 1, 9.0, 9.0}};
  report.decision.outliers.excluded = true;
  report.decision.short_of_rows = true;
  RoundState state =
      NextRoundState(options, InitialRoundState(options), report, kNow);
  EXPECT_EQ(state.examples, 30u);
  EXPECT_EQ(state.excluded_rows, 1u);
  EXPECT_THAT(state.excluded_by_rank, ElementsAre(1));
  EXPECT_EQ(state.outlier_rows, 1u);
  EXPECT_THAT(state.outliers_by_rank, ElementsAre(0, 1));
  EXPECT_EQ(state.short_rounds, 1u);
  report.narrowed = {"w", 0, 4, 50, 2};
  state = NextRoundState(options, state, report, kNow);
  state = NextRoundState(options, state, report, kNow);
  EXPECT_EQ(state.narrowed_to_infinity, 8u);
  EXPECT_EQ(state.narrowed_to_zero, 4u);
  report.narrowed = {};
  state = NextRoundState(options, InitialRoundState(options), report, kNow);
  report.decision.excluded_ranks = {};  // only warned of
  report.decision.outliers.excluded = false;
  state = NextRoundState(options, state, report, kNow);
  EXPECT_EQ(state.excluded_rows, 1u);
  EXPECT_EQ(state.outlier_rows, 2u);
}

TEST(RoundStateTest, ExcludedRanksAboveTheCapCountInTheTotalOnly) {
  MetricsOptions options;
  options.max_workers = 2;
  RoundReport report = Report({0, 5});
  report.decision.excluded_ranks = {5};
  const RoundState state =
      NextRoundState(options, InitialRoundState(options), report, kNow);
  EXPECT_EQ(state.excluded_rows, 1u);
  EXPECT_THAT(state.excluded_by_rank, ElementsAre(0));
}

TEST(RoundStateTest, AddsUpHowLateEachWorkerWas) {
  MetricsOptions options;
  options.max_workers = 3;
  RoundReport report = Report({0, 2, 7});
  report.rows[1].commit_delay = absl::Milliseconds(250);
  report.rows[2].commit_delay = absl::Seconds(9);
  const RoundState once =
      NextRoundState(options, InitialRoundState(options), report, kNow);
  EXPECT_THAT(once.delay_seconds_by_rank, ElementsAre(0.0, 0.0, 0.25));
  report.applied = false;  // a skipped round was waited for, too
  const RoundState twice = NextRoundState(options, once, report, kNow);
  EXPECT_THAT(twice.delay_seconds_by_rank, ElementsAre(0.0, 0.0, 0.5));
  EXPECT_EQ(twice.last_round_time, 1.5);
  EXPECT_TRUE(std::isnan(InitialRoundState(options).last_round_time));
}

TEST(RoundStateTest, ScoresNormsAmongAllRowsOfTheRound) {
  MetricsOptions options;
  options.max_workers = 2;
  RoundReport report = Report({0, 1, 2, 3, 4, 5, 6, 7});
  // Logarithms 0 1 1 1 2 2 3 3: median 1.5, distances 1.5 0.5 0.5 0.5 0.5 0.5
  // 1.5 1.5, MAD 0.5. The rows above the cap count.
  report.statistics.row_norms.clear();
  for (const double logarithm : {0, 1, 1, 1, 2, 2, 3, 3}) {
    report.statistics.row_norms.push_back(std::exp(logarithm));
  }
  const RoundState state =
      NextRoundState(options, InitialRoundState(options), report, kNow);
  ASSERT_EQ(state.gauges.workers.size(), 2u);
  EXPECT_NEAR(state.gauges.workers[0].outlier_score, 3.0 / 1.4826, 1e-12);
  EXPECT_NEAR(state.gauges.workers[1].outlier_score, 1.0 / 1.4826, 1e-12);
}

TEST(RoundStateTest, ASkippedRoundLeavesAllGaugesButTheLoss) {
  const MetricsOptions options;
  RoundReport report = Report({0});
  report.loss = 1.5;
  report.decision.tau = 4.0;
  report.decision.gain = 3.0;
  const RoundState applied =
      NextRoundState(options, InitialRoundState(options), report, kNow);
  RoundReport skip = Report({0, 1});
  skip.applied = false;
  skip.loss = 2.5;
  skip.decision.kind = DecisionKind::kSkip;
  skip.decision.excluded_ranks = {0, 1};
  const RoundState state = NextRoundState(options, applied, skip, kNow);
  EXPECT_EQ(state.applied_rounds, 1u);
  EXPECT_EQ(state.skipped_rounds, 1u);
  EXPECT_EQ(Number(state, "loss"), 2.5);
  EXPECT_EQ(Number(state, "tau"), 4.0);
  EXPECT_EQ(Number(state, "gain"), 3.0);
  EXPECT_EQ(state.gauges.workers.size(), 1u);
  EXPECT_EQ(state.examples, 10u);
  EXPECT_EQ(state.excluded_rows, 2u);
}

TEST(RoundStateTest, AdaconsCoefficientsComeFromTheRuleInUse) {
  MetricsOptions options;
  options.shadow_rules = {{"adasum", "global"}, {"adacons", "global"}};
  RoundReport report = Report({0, 1});
  report.statistics.shadows.resize(2);
  report.statistics.shadows[0].coefficients = {7.0, 8.0};
  report.statistics.shadows[1].coefficients = {0.4, 0.6};
  const auto second = [&] {
    return NextRoundState(options, InitialRoundState(options), report, kNow)
        .gauges.workers[1]
        .adacons_coefficient;
  };
  EXPECT_EQ(second(), 0.6);
  report.combination.rule = "adacons";
  EXPECT_EQ(second(), 101.0);
  report.combination.rule = "mean";
  options.shadow_rules.clear();
  EXPECT_TRUE(std::isnan(second()));
}

TEST(RoundStateTest, ObservesThePhasesThatRan) {
  const MetricsOptions options;
  RoundReport report = Report({0});
  report.durations.wait = absl::Milliseconds(50);
  report.durations.publish = absl::Microseconds(100);  // on a bound: inside
  const RoundState state = NextRoundState(
      options,
      NextRoundState(options, InitialRoundState(options), report, kNow), report,
      kNow);
  const auto num_observed = [&](size_t phase) {
    uint64_t num = 0;
    for (const uint64_t count : state.phases[phase].counts()) num += count;
    return num;
  };
  EXPECT_EQ(num_observed(0), 2u);  // wait
  EXPECT_EQ(num_observed(2), 0u);  // compensated
  EXPECT_EQ(num_observed(6), 2u);  // publish
  EXPECT_EQ(state.phases[0].counts()[8], 2u);
  EXPECT_DOUBLE_EQ(state.phases[0].sum_seconds(), 0.1);
  EXPECT_EQ(state.phases[6].counts()[0], 2u);
  EXPECT_EQ(state.rounds.counts()[8], 0u);
  EXPECT_EQ(state.rounds.counts()[9], 2u);
  EXPECT_DOUBLE_EQ(state.rounds.sum_seconds(), 0.1002);
}

TEST(DurationHistogramTest, TheLastBucketHasNoBound) {
  DurationHistogram histogram;
  histogram.Observe(absl::Seconds(100));
  histogram.Observe(absl::Seconds(101));
  EXPECT_EQ(histogram.counts()[18], 1u);
  EXPECT_EQ(histogram.counts()[19], 1u);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(OutlierScoresTest, CountsDeviationsOfTheLogarithms) {
  // Binary logarithms 0 1 1 2 2 3 3 4 10: median 2, distances 2 1 1 0 0 1 1 2
  // 8, MAD 1.
  const auto near = [](double value) { return DoubleNear(value, 1e-12); };
  const double one = 1 / 1.4826;
  EXPECT_THAT(
      OutlierScores({1, 2, 2, 4, 4, 8, 8, 16, 1024}),
      ElementsAre(near(2 * one), near(one), near(one), near(0.0), near(0.0),
                  near(one), near(one), near(2 * one), near(8 * one)));
}

TEST(OutlierScoresTest, TheScaleOfTheGradientsDoesNotMatter) {
  std::vector<double> norms = {1, 2, 5, 9, 11, 12, 14, 20};
  const std::vector<double> one = OutlierScores(norms);
  for (double& norm : norms) norm *= 1e9;
  const std::vector<double> two = OutlierScores(norms);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], two[i], 1e-9);
  }
}

TEST(OutlierScoresTest, TheMedianOfAnEvenNumberIsBetweenTheMiddleTwo) {
  // Binary logarithms 0 0 1 1 3 3 6 6: median 2, distances 2 2 1 1 1 1 4 4, MAD
  // 1.5.
  EXPECT_NEAR(OutlierScores({1, 1, 2, 2, 8, 8, 64, 64})[7], 4 / 1.5 / 1.4826,
              1e-12);
}

TEST(OutlierScoresTest, RowsWithoutANormNeitherCountNorHaveAScore) {
  const std::vector<double> scores =
      OutlierScores({kNan, 1, 1, 1, 2, 2, 4, 4, 4});
  EXPECT_TRUE(std::isnan(scores[0]));
  EXPECT_NEAR(scores[1], 1 / 1.4826, 1e-12);
  EXPECT_EQ(scores[4], 0.0);
}

// Three norms of a healthy job once had a score of 13.9.
TEST(OutlierScoresTest, FewerThanTheSmallestNumberHaveNone) {
  EXPECT_THAT(OutlierScores({}), IsEmpty());
  EXPECT_THAT(OutlierScores({1.0, 1.01, 1.2}), Each(IsNan()));
  std::vector<double> norms = {1, 2, 3, 4, 5, 6, 7, kNan};
  EXPECT_THAT(OutlierScores(norms), Each(IsNan()));
  norms.back() = 8;
  EXPECT_THAT(OutlierScores(norms), Each(Not(IsNan())));
}

// How README.md explains kMinOutlierNorms: the share of rounds of equal workers
// in which anybody's score is above 5. At 7 norms it is 7.4%, at 3 it is 21%.
TEST(OutlierScoresTest, HealthyRoundsHaveHighScoresSeldom) {
  constexpr int kRounds = 20000;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (size_t num_norms :
       {kMinOutlierNorms, kMinOutlierNorms + 1, 2 * kMinOutlierNorms}) {
    int num_high = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> norms(num_norms);
      for (double& norm : norms) norm = std::exp(normal(random));
      const std::vector<double> scores = OutlierScores(norms);
      num_high += *std::max_element(scores.begin(), scores.end()) > 5.0;
    }
    EXPECT_LT(num_high, 0.06 * kRounds) << num_norms;
  }
}

TEST(OutlierScoresTest, AnotherNormThanTheManyEqualOnesIsInfinitelyFar) {
  EXPECT_THAT(OutlierScores({3, 3, 3, 3, 3, 3, 3, 5}),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, kInfinity));
  EXPECT_THAT(OutlierScores({3, 3, 3, 3, 3, 3, 3, 3}), Each(0.0));
}

TEST(OutlierScoresTest, AZeroNormIsInfinitelyFar) {
  EXPECT_EQ(OutlierScores({0, 1, 2, 4, 8, 16, 32, 64})[0], kInfinity);
  EXPECT_THAT(OutlierScores({0, 0, 0, 0, 0, 0, 0, 1}),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, kInfinity));
}

}  // namespace
}  // namespace agg
