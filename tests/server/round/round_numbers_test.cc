#include "server/round/round_numbers.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/statistics.h"
#include "server/round/round_report.h"
#include "tests/reference/adascale_estimators.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ValueOf(const std::string& name, const RoundReport& report) {
  for (const RoundNumber& number : RoundNumbers()) {
    if (number.name == name) return number.value.Get(report);
  }
  ADD_FAILURE() << "there is no number " << name;
  return 0.0;
}

// The report of a first round with these rows, in which every row is the mean
// of `accumulation` baseline batches of 8 examples.
RoundReport ReportOf(const Rows& rows, int accumulation) {
  const CombineOptions options = MakeOptions("mean");
  RoundInput input = MakeRound({rows});
  for (RowInfo& row : input.rows) {
    row.examples = 8 * accumulation;
    row.accumulation = accumulation;
  }
  const CombineState state;
  RoundReport report;
  report.applied = true;
  for (const RowInfo& row : input.rows) {
    static_cast<RowInfo&>(report.rows.emplace_back()) = row;
  }
  report.decision = Decide(options, state, input);
  CombineState next = report.decision.next_state;
  report.statistics =
      ComputeStatistics(options, state, input, report.decision, &next);
  return report;
}

// How many workers make a round worth half of what any number of them could,
// from the vectors: by halving an interval on AdaScale's gain.
double HalfOfTheLargestGain(const Rows& rows, int accumulation) {
  reference::Estimate estimate = reference::AdaptdlEstimate(
      rows, static_cast<reference::Real>(accumulation * rows.size()));
  const reference::Real half = reference::Gain(estimate, 1e300L) / 2;
  reference::Real low = 0;
  reference::Real high = 1e6;
  for (int i = 0; i < 200; ++i) {
    const reference::Real middle = (low + high) / 2;
    (reference::Gain(estimate, middle) < half ? low : high) = middle;
  }
  return static_cast<double>(high / accumulation);
}

TEST(RoundNumbersTest, NamesAreUniqueInEachOutlet) {
  for (const auto outlet :
       {&RoundOutlets::metric, &RoundOutlets::page, &RoundOutlets::tile,
        &RoundOutlets::report, &RoundOutlets::trace, &RoundOutlets::step}) {
    std::set<std::string> names;
    for (const RoundNumber& number : RoundNumbers()) {
      const std::string name = NameIn(number, outlet);
      if (name.empty()) continue;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
    EXPECT_FALSE(names.empty());
  }
}

TEST(RoundNumbersTest, EachIsDescribed) {
  std::set<std::string> names;
  for (const RoundNumber& number : RoundNumbers()) {
    EXPECT_TRUE(names.insert(number.name).second) << number.name;
    EXPECT_TRUE(absl::EndsWith(number.help, ".")) << number.name;
    // Prometheus' names of sums end so, and no others.
    EXPECT_EQ(absl::EndsWith(NameIn(number, &RoundOutlets::metric), "_total"),
              number.set_by == SetBy::kSum)
        << number.name;
    // A tile shows what the page's data has.
    EXPECT_FALSE(NameIn(number, &RoundOutlets::page).empty() &&
                 !NameIn(number, &RoundOutlets::tile).empty())
        << number.name;
  }
}

TEST(RoundNumbersTest, ValuesAreReadAndWritten) {
  RoundReport report;
  double value = 1.0;
  for (const RoundNumber& number : RoundNumbers()) {
    if (!number.value.IsDerived()) number.value.Set(value += 0.5, &report);
  }
  // Each has a place of its own: nothing was written over.
  value = 1.0;
  for (const RoundNumber& number : RoundNumbers()) {
    if (number.value.IsDerived()) continue;
    EXPECT_EQ(number.value.Get(report), value += 0.5) << number.name;
  }
  EXPECT_EQ(ReadRoundNumbers(report).size(), RoundNumbers().size());
}

TEST(RoundNumbersTest, ANewNumberIsEverywhere) {
  constexpr RoundNumber kNew = {"gradient_norm_spread", "ratio", "A new one.",
                                RoundValue(&Decision::gain)};
  for (const auto outlet : {&RoundOutlets::metric, &RoundOutlets::page,
                            &RoundOutlets::trace, &RoundOutlets::step}) {
    EXPECT_EQ(NameIn(kNew, outlet), "gradient_norm_spread");
  }
  EXPECT_EQ(LabelIn(kNew, &RoundOutlets::tile), "gradient norm spread");
  EXPECT_EQ(LabelIn(kNew, &RoundOutlets::report), "gradient norm spread");
  constexpr RoundNumber kLogged = {
      "hidden",
      "",
      "In the round log alone.",
      RoundValue(&Decision::gain),
      {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}};
  EXPECT_EQ(NameIn(kLogged, &RoundOutlets::metric), "");
  EXPECT_EQ(LabelIn(kLogged, &RoundOutlets::tile), "");
}

TEST(RoundNumbersTest, UsefulWorkersMakeHalfOfTheLargestGain) {
  for (const double bias : {0.4, 0.5, 0.6}) {
    const Rows rows = BiasedLcgRows(2, 6, 50, bias);
    for (const int accumulation : {1, 3}) {
      const double expected = HalfOfTheLargestGain(rows, accumulation);
      EXPECT_GT(expected, 1.0) << bias;  // else another test's case
      EXPECT_LT(expected, 100.0) << bias;
      EXPECT_NEAR(ValueOf("useful_workers", ReportOf(rows, accumulation)),
                  expected, 1e-9 * expected)
          << bias << ", " << accumulation;
    }
  }
}

TEST(RoundNumbersTest, OneWorkerIsAlwaysUseful) {
  EXPECT_EQ(ValueOf("useful_workers", ReportOf({{1, 2}, {1, 2}, {1, 2}}, 1)),
            1.0);
}

TEST(RoundNumbersTest, UsefulWorkersWithoutAnEstimateOrASignal) {
  // One row has no variance, and there were no averages before it.
  EXPECT_TRUE(std::isnan(ValueOf("useful_workers", ReportOf({{3, 4}}, 1))));
  EXPECT_TRUE(std::isnan(ValueOf("useful_workers", RoundReport())));
  EXPECT_EQ(ValueOf("useful_workers", ReportOf({{1, 0}, {-1, 0}}, 1)),
            kInfinity);
}

TEST(RoundNumbersTest, UsefulWorkersAreCountedInKeptRows) {
  Rows rows = BiasedLcgRows(2, 4, 50, 0.4);
  const double all = ValueOf("useful_workers", ReportOf(rows, 1));
  EXPECT_TRUE(std::isfinite(all));
  rows.emplace_back(50, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(ValueOf("useful_workers", ReportOf(rows, 1)), all);
}

}  // namespace
}  // namespace agg
