#include "server/coordinator/round_reporter.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

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

TEST(RoundReporterTest, TensorsHaveTheirGramsWhereTheJobAsks) {
  std::vector<size_t> entries;
  for (const uint64_t every : {0, 1, 3}) {
    RoundReporter reporter(
        [&](const RoundReport& report) {
          entries.push_back(report.statistics.tensor_grams.size());
        },
        every);
    for (uint64_t r = 0; r < 3; ++r) {
      Finished finished(MakeOptions("mean"), 1, r);
      finished.report.version = r + 1;
      Add(&reporter, std::move(finished));
    }
  }
  // Two rows have three entries.
  EXPECT_THAT(entries, ElementsAre(0, 0, 0, 3, 3, 3, 0, 0, 3));
}

// The engine makes such a round of one tensor of zeros.
TEST(RoundReporterTest, ARoundThatFailedBeforeItsGramsHasNoneOfItsTensors) {
  std::vector<size_t> entries;
  RoundReporter reporter(
      [&](const RoundReport& report) {
        entries.push_back(report.statistics.tensor_grams.size());
      },
      /*tensor_grams_every=*/1);
  for (const bool failed : {true, false}) {
    const CombineOptions options = MakeOptions("mean");
    const RoundInput input = MakeRound({LcgRows(1, 2, 4), LcgRows(2, 2, 4)});
    RoundFacts facts;
    facts.combine = options;
    RoundReport report;
    report.version = 1;
    if (failed) {
      facts.rows = CompactRound(input.rows, {GramMatrix(2)});
      CompactedRound nothing;
      nothing.num_tensors = input.tensors.size();
      report.decision = DecideCoefficients(options, {}, 0, nothing);
    } else {
      facts.rows = CompactRound(input.rows, input.tensors);
      report.decision = Decide(options, {}, input);
    }
    reporter.Add(std::move(facts), std::move(report));
  }
  EXPECT_THAT(entries, ElementsAre(0, 6));
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

TEST(RoundReporterTest, ShadowsThatAreExternalAreAskedAfterTheRound) {
  CombineOptions options = MakeOptions("mean");
  options.shadow_rules.push_back(MakeOptions("adasum").rule);
  options.shadow_rules.push_back(MakeOptions("external").rule);
  std::vector<ShadowReport> shadows;
  RoundReporter reporter([&](const RoundReport& report) {
    shadows.push_back(report.statistics.shadows[1]);
  });
  std::vector<std::string> states;
  reporter.SetAskRule([&](const CombineOptions&, const RuleOptions& rule,
                          const CompactedRound& round,
                          absl::Span<const RuleState> before,
                          const RoundWords&) {
    states.push_back(before.empty() ? "none" : before[0].bytes);
    ExternalAnswer answer;
    answer.name = rule.external.name;
    answer.segments = {{std::vector<double>(round.num_rows(), 1.0), "left"}};
    if (states.size() == 2) answer.missing = "it is away";
    return answer;
  });
  for (uint64_t r = 0; r < 3; ++r) {
    Finished finished(options, 1, r);
    finished.report.applied = true;
    Add(&reporter, std::move(finished));
  }
  reporter.Flush();
  ASSERT_EQ(shadows.size(), 3u);
  EXPECT_THAT(shadows[0].coefficients, ElementsAre(1.0, 1.0));
  EXPECT_THAT(shadows[1].coefficients, IsEmpty());
  EXPECT_THAT(shadows[2].coefficients, ElementsAre(1.0, 1.0));
  EXPECT_THAT(states, ElementsAre("none", "left", "left"));
  // What it remembers is part of a checkpoint.
  EXPECT_EQ(reporter.ShadowRules().at(1).at(0).bytes, "left");
}

TEST(RoundReporterTest, ShadowsAreAskedAboutDecidedRoundsAlone) {
  CombineOptions options = MakeOptions("mean");
  options.shadow_rules.push_back(MakeOptions("external").rule);
  int num_asked = 0;
  RoundReporter reporter([](const RoundReport&) {});
  reporter.SetAskRule([&](const CombineOptions&, const RuleOptions& rule,
                          const CompactedRound&, absl::Span<const RuleState>,
                          const RoundWords&) {
    ++num_asked;
    ExternalAnswer answer;
    answer.name = rule.external.name;
    answer.missing = "it is away";
    return answer;
  });
  // As of a round in waves: some tensors changed, and no decision is of all.
  Finished waves(options, 1, 0);
  waves.report.applied = true;
  waves.report.decision.kind = DecisionKind::kSkip;
  Add(&reporter, std::move(waves));
  EXPECT_EQ(num_asked, 0);
  Finished whole(options, 1, 1);
  whole.report.applied = true;
  Add(&reporter, std::move(whole));
  EXPECT_EQ(num_asked, 1);
}

// What a round's report says to workers and to people.

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

// Ranks 0, 1 and 4; rank 1 incomplete on shard 2, rank 4 not finite.
RoundReport Report() {
  RoundReport report;
  report.epoch = 9;
  report.round = 5;
  report.version = 6;
  report.applied = true;
  report.rows.resize(3);
  report.rows[1].rank = 1;
  report.rows[2].rank = 4;
  report.incomplete_rows = {{1, 2}};
  report.decision.excluded_ranks = {1, 4};
  report.decision.learning_rate = 0.5;
  return report;
}

ClosingRound Round() {
  ClosingRound round;
  round.epoch = 9;
  round.round = 5;
  round.waited = absl::Seconds(7);
  round.contributions[0].committed_at = At(30);
  round.contributions[1].committed_at = At(20);
  round.contributions[4].committed_at = At(25);
  return round;
}

TEST(RoundOutcomeTest, TheReportIsCompleted) {
  RoundReport report = Report();
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.durations.wait, absl::Seconds(7));
  EXPECT_EQ(report.finished_at, At(40));
  EXPECT_EQ(report.rows[0].commit_delay, absl::Seconds(10));
  EXPECT_EQ(report.rows[1].commit_delay, absl::Seconds(0));
  EXPECT_EQ(report.rows[2].commit_delay, absl::Seconds(5));
}

TEST(RoundOutcomeTest, RemarksSayWhyARowIsLeftOut) {
  RoundReport report = Report();
  report.decision.compensated = true;
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.message,
            "excluded, committed but not completely pushed: rank 1 (shard 2); "
            "excluded non-finite rows of ranks 4; used compensated Grams");
  report = Report();
  report.message = "why it was skipped";
  CompleteReport(Round(), At(40), &report);
  EXPECT_THAT(report.message, HasSubstr("why it was skipped; excluded, "));
}

TEST(RoundOutcomeTest, RemarksNameOutliersApart) {
  RoundReport report = Report();
  report.decision.excluded_ranks = {0, 1, 4};
  report.decision.outliers.rows = {{0, 0, 712.4, 31.44}};
  report.decision.outliers.excluded = true;
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.message,
            "excluded, committed but not completely pushed: rank 1 (shard 2); "
            "excluded non-finite rows of ranks 4; excluded as outliers: rank 0 "
            "(norm 712, 31.4 deviations)");
  report = Report();
  report.decision.outliers.rows = {{0, 0, 0.5, 7}};
  CompleteReport(Round(), At(40), &report);
  EXPECT_THAT(report.message, HasSubstr("; outliers, which count: rank 0 "
                                        "(norm 0.5, 7.0 deviations)"));
  report = Report();
  report.decision.outliers.too_few_rows = true;
  report.decision.short_of_rows = true;
  report.combination.rule = "krum";
  CompleteReport(Round(), At(40), &report);
  EXPECT_THAT(report.message,
              HasSubstr("outliers were not looked for: fewer than 4 rows that "
                        "are not zero; krum had fewer rows than 2 "
                        "byzantine_workers + 3"));
  report = Report();
  report.decision.external_fallback = "process vm:7 has not answered in 5s";
  CompleteReport(Round(), At(40), &report);
  EXPECT_THAT(report.message,
              HasSubstr("; the external rule gave no weights, and its fallback "
                        "was applied: process vm:7 has not answered in 5s"));
}

TEST(RoundOutcomeTest, RemarksTellOtherBytesFromMissingOnes) {
  RoundReport report = Report();
  report.incomplete_rows = {{0, 2}, {1, 3, true}, {4, 2}};
  report.decision.excluded_ranks = {0, 1, 4};
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.message,
            "excluded, committed but not completely pushed: rank 0 (shard 2), "
            "rank 4 (shard 2); excluded, pushed with other bytes than the "
            "commit's checksum says: rank 1 (shard 3)");
}

TEST(RoundOutcomeTest, RemarksNameParametersThatAreNotFinite) {
  RoundReport report = Report();
  report.incomplete_rows.clear();
  report.decision.excluded_ranks.clear();
  report.not_finite = {"w", 2};
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.message,
            "this round's update left parameters that are not finite: tensor "
            "\"w\" (shard 2)");
}

TEST(RoundOutcomeTest, RemarksNameWhatNarrowingLoses) {
  const auto message = [](const NarrowedVersion& narrowed) {
    RoundReport report = Report();
    report.incomplete_rows.clear();
    report.decision.excluded_ranks.clear();
    report.narrowed = narrowed;
    CompleteReport(Round(), At(40), &report);
    return report.message;
  };
  EXPECT_EQ(message({"w", 2, 12, 1000, 1}),
            "12 values of this version are finite, and infinite for who pulls "
            "them narrowed to pull_dtype: tensor \"w\" (shard 2); allowed: "
            "pull_dtype \"f32\", or \"bf16\", which has float32's range");
  EXPECT_EQ(message({"", 0, 0, 999, 1}),
            "1 of 999 values that were looked at are not zero, and zero in "
            "pull_dtype; allowed: pull_dtype \"f32\", or \"bf16\", which has "
            "float32's range");
  EXPECT_EQ(message({"", 0, 0, 1000, 1}), "");
  EXPECT_EQ(message({}), "");
}

TEST(RoundOutcomeTest, RemarksNameEqualRowsAndSumsThatCannotBe) {
  RoundReport report = Report();
  report.incomplete_rows.clear();
  report.decision.excluded_ranks.clear();
  report.decision.equal_ranks = {{0, 1}, {2, 3, 4, 5, 6}};
  report.decision.small_sum_ranks = {3};
  report.says_equal_rows = true;
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.message,
            "rows that are equal, round after round: ranks 0, 1, ranks 2 and 3 "
            "and 3 more; workers that compute on the same data add nothing: "
            "give each its own part (a DistributedSampler, a seed by rank); "
            "the norm_squared_sum of ranks 3 is less than accumulation times "
            "the row's squared norm, which no sum over its micro-gradients is, "
            "and was not used: where the loss was divided by accumulation, "
            "multiply the sum by accumulation^2");
  report = Report();
  report.incomplete_rows.clear();
  report.decision.excluded_ranks.clear();
  report.decision.equal_ranks = {{0, 1}};
  CompleteReport(Round(), At(40), &report);
  EXPECT_EQ(report.message, "");
}

TEST(RoundOutcomeTest, ManyRowsAreCounted) {
  RoundReport report = Report();
  report.incomplete_rows.clear();
  for (int rank = 0; rank < 10; ++rank) {
    report.incomplete_rows.push_back({rank, 0});
    report.partial_rows.push_back({rank, 5, 12});
  }
  report.decision.excluded_ranks.clear();
  for (int rank = 0; rank < 8; ++rank) {
    report.decision.outliers.rows.push_back({rank, rank, 0.5, 7});
  }
  CompleteReport(Round(), At(40), &report);
  EXPECT_THAT(
      report.message,
      AllOf(HasSubstr("rank 7 (shard 0), 2 more; rows that are not finite, or "
                      "not all there, in part of the tensors alone: rank 0 in "
                      "5 of 12 tensors, rank 1"),
            HasSubstr("rank 7 in 5 of 12 tensors, 2 more; outliers, which"),
            EndsWith("rank 7 (norm 0.5, 7.0 deviations)")));
}

TEST(RoundOutcomeTest, TheOutcomeNamesTheRowsThatCount) {
  const RoundResult outcome = OutcomeOf(Report());
  EXPECT_EQ(outcome.epoch, 9u);
  EXPECT_EQ(outcome.round, 5u);
  EXPECT_EQ(outcome.version, 6u);
  EXPECT_EQ(outcome.kind, OutcomeKind::kApplied);
  EXPECT_THAT(outcome.ranks, ElementsAre(0));
  EXPECT_THAT(outcome.excluded_ranks, ElementsAre(1, 4));
  EXPECT_EQ(outcome.learning_rate, 0.5);
  EXPECT_FALSE(outcome.included);
}

// What a row of the result had was pushed, whoever lacked it.
TEST(RoundOutcomeTest, ATensorIsAbsentIfNoRowThatCountsHadIt) {
  const auto absent = [](const std::vector<std::string>& rows,
                         std::vector<int32_t> excluded) {
    RoundReport report = Report();
    report.decision.excluded_ranks = std::move(excluded);
    for (size_t i = 0; i < rows.size(); ++i) {
      report.rows[i].absent_tensors = rows[i];
    }
    return OutcomeOf(report).absent_tensors;
  };
  const std::string low("\x0e", 1), high("\x06\x80", 2);
  EXPECT_THAT(absent({low, high, low}, {}), ElementsAre(1, 2));
  EXPECT_THAT(absent({high, high, high}, {}), ElementsAre(1, 2, 15));
  EXPECT_THAT(absent({high, "", high}, {}), IsEmpty());
  EXPECT_THAT(absent({high, "", high}, {1}), ElementsAre(1, 2, 15));
  EXPECT_THAT(absent({low, high, ""}, {1, 4}), ElementsAre(1, 2, 3));
  EXPECT_THAT(absent({high, high, high}, {0, 1, 4}), IsEmpty());
  EXPECT_THAT(absent({}, {}), IsEmpty());
}

TEST(RoundOutcomeTest, RanksWithOtherParametersAreNamed) {
  RoundReport report = Report();
  report.rows[0].parameters_digest = 8;
  report.rows[1].parameters_digest = 8;
  report.rows[2].parameters_digest = 9;
  report.message = "what else there is";
  const RoundResult outcome = OutcomeOf(report);
  EXPECT_THAT(outcome.differing_ranks, ElementsAre(4));
  EXPECT_THAT(outcome.message,
              HasSubstr("what else there is; workers' parameters differ: rank "
                        "4 from those of ranks 0, 1"));
}

TEST(RoundOutcomeTest, ASkippedRoundContainsNoRows) {
  RoundReport report = Report();
  report.applied = false;
  EXPECT_EQ(OutcomeOf(report).kind, OutcomeKind::kSkipped);
  EXPECT_THAT(OutcomeOf(report).ranks, IsEmpty());
}

}  // namespace
}  // namespace agg
