#include "server/coordinator/round_reporter.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using testing::ElementsAre;

// A round of two rows, decided by `options`.
struct Finished {
  Finished(const CombineOptions& options, uint64_t epoch, uint64_t round) {
    const RoundInput input =
        MakeRound({LcgRows(static_cast<uint32_t>(round) + 1, 2, 4)});
    facts.combine = options;
    facts.rows = CompactRound(input.rows, input.tensors);
    report.epoch = epoch;
    report.round = round;
    report.decision = Decide(options, {}, input);
  }
  RoundFacts facts;
  RoundReport report;
};

void Add(RoundReporter* reporter, Finished finished) {
  reporter->Add(std::move(finished.facts), std::move(finished.report));
}

TEST(RoundReporterTest, ReportsAtOnceWithoutAThread) {
  std::vector<RoundReport> reports;
  RoundReporter reporter(
      [&](const RoundReport& report) { reports.push_back(report); });
  Add(&reporter, Finished(MakeOptions("mean"), 1, 0));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_THAT(reports[0].statistics.row_coefficients, ElementsAre(0.5, 0.5));
}

TEST(RoundReporterTest, ReportsInOrderAndAtMostOneRoundBehind) {
  constexpr uint64_t kNumRounds = 50;
  std::atomic<uint64_t> num_added{0};
  std::vector<uint64_t> rounds;
  std::vector<uint64_t> added;  // when the round was reported
  std::thread::id thread;
  {
    RoundReporter reporter([&](const RoundReport& report) {
      rounds.push_back(report.round);
      added.push_back(num_added);
      thread = std::this_thread::get_id();
    });
    reporter.Start();
    for (uint64_t r = 0; r < kNumRounds; ++r) {
      Add(&reporter, Finished(MakeOptions("mean"), 1, r));
      ++num_added;
    }
  }  // reports the last one
  ASSERT_EQ(rounds.size(), kNumRounds);
  EXPECT_NE(thread, std::this_thread::get_id());
  for (uint64_t r = 0; r < kNumRounds; ++r) {
    EXPECT_EQ(rounds[r], r);
    EXPECT_LE(added[r], r + 1);  // the next one waited
  }
}

TEST(RoundReporterTest, FlushWaitsForTheReport) {
  std::atomic<int> num_reports{0};
  RoundReporter reporter([&](const RoundReport&) { ++num_reports; });
  reporter.Start();
  reporter.Flush();  // nothing is there
  Add(&reporter, Finished(MakeOptions("mean"), 1, 0));
  reporter.Flush();
  EXPECT_EQ(num_reports, 1);
}

TEST(RoundReporterTest, ShadowRulesRemember) {
  CombineOptions options = MakeOptions("mean");
  options.shadow_rules.push_back(MakeOptions("adacons").rule);
  std::vector<double> norms;
  RoundReporter reporter([&](const RoundReport& report) {
    norms.push_back(report.statistics.shadows[0].norm);
  });
  reporter.Start();
  // What the state alone makes of the rounds 0, 5 and 0 again.
  CombineState state;
  std::vector<double> expected;
  for (const uint64_t round : {0, 5, 0}) {
    const Finished finished(options, 1, round);
    expected.push_back(ComputeStatistics(options, {}, finished.facts.rows,
                                         finished.report.decision,
                                         &state.shadow_rules)
                           .shadows[0]
                           .norm);
    Add(&reporter, Finished(options, 1, round));
  }
  // Another epoch goes on where the former one was, or as it is given.
  const std::vector<std::vector<RuleState>> kept = reporter.ShadowRules();
  reporter.SetShadowRules({});
  Add(&reporter, Finished(options, 2, 0));
  reporter.Flush();
  ASSERT_EQ(norms.size(), 4u);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0][0].values, state.shadow_rules[0][0].values);
  EXPECT_THAT(std::vector<double>(norms.begin(), norms.begin() + 3),
              testing::ElementsAreArray(expected));
  EXPECT_NE(norms[2], norms[0]);  // it remembers
  EXPECT_EQ(norms[3], norms[0]);  // it was given nothing
}

}  // namespace
}  // namespace agg
