// What is left of rounds whose coordinator is gone.
#include <vector>

#include "gtest/gtest.h"
#include "server/coordinator/job_record.h"
#include "server/round/round_report.h"

namespace agg {
namespace {

RecordedOutcome Outcome(uint64_t epoch, uint64_t round) {
  RecordedOutcome recorded;
  recorded.outcome.epoch = epoch;
  recorded.outcome.round = round;
  recorded.outcome.version = round + 1;
  recorded.outcome.ranks = {0, 2};
  recorded.outcome.excluded_ranks = {1};
  recorded.outcome.message = "excluded";
  recorded.included = {{4096, 3}, {4097, 0}};
  return recorded;
}

JobRecord Record() {
  JobRecord record;
  record.history = 20;
  record.outcomes = {Outcome(10, 4), Outcome(20, 5), Outcome(21, 6)};
  record.used_rows = {{0, {4096, 6, 3}}, {2, {5000, 6, 0}}};
  return record;
}

TEST(RestoredRoundsTest, WhatWasNotReportedIsMadeAgain) {
  const std::vector<RoundReport> reports = RestoredReports(Record(), {10, 5});
  ASSERT_EQ(reports.size(), 2u);
  const RoundReport& report = reports[0];
  EXPECT_TRUE(report.restored);
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.epoch, 20u);
  EXPECT_EQ(report.history, 20u);
  EXPECT_EQ(report.round, 5u);
  EXPECT_EQ(report.version, 6u);
  EXPECT_EQ(report.message, "excluded");
  ASSERT_EQ(report.rows.size(), 3u);
  ASSERT_EQ(report.origins.size(), 3u);
  EXPECT_EQ(report.rows[0].rank, 0);
  EXPECT_EQ(report.origins[0].session, 4096u);
  EXPECT_EQ(report.origins[0].attempt, 3u);
  // The rank has another session by now.
  EXPECT_EQ(report.rows[1].rank, 2);
  EXPECT_EQ(report.origins[1].session, 0u);
  EXPECT_EQ(report.rows[2].rank, 1);
  EXPECT_EQ(report.decision.excluded_ranks, std::vector<int32_t>{1});
}

TEST(RestoredRoundsTest, AnotherProcessKnowsNothing) {
  const std::vector<RoundReport> reports = RestoredReports(Record(), {});
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].history, 0u);  // before the last rewind
  EXPECT_TRUE(RestoredReports(JobRecord(), {}).empty());
}

}  // namespace
}  // namespace agg
