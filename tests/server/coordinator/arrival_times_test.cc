// How late rows are, and what may be waited for; with times that are given.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/coordinator/close_policy.h"

namespace agg {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
absl::Time At(int milliseconds) {
  return kStart + absl::Milliseconds(milliseconds);
}

// A round whose rows came so many milliseconds after kStart, by rank.
void Note(ArrivalTimes* arrivals, uint64_t round,
          const std::vector<int>& milliseconds) {
  std::vector<RowArrival> rows;
  for (int at : milliseconds) {
    rows.push_back({static_cast<int32_t>(rows.size()), At(at)});
  }
  arrivals->NoteRound(round, rows);
}

// --- The timeout -------------------------------------------------------------

TEST(ArrivalTimesTest, TheTimeoutIsMedianAndDeviation) {
  ArrivalTimes arrivals(5.0);
  // After the first row: 20, 30, 40 and 120; the first row itself is left out.
  Note(&arrivals, 0, {100, 120, 130, 140, 220});
  EXPECT_EQ(arrivals.Timeout(), absl::ZeroDuration());  // four rows tell little
  Note(&arrivals, 1, {620, 500, 530, 540, 520});
  // Median 35; the differences 15 5 5 85, twice: MAD 10.
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(85));
}

TEST(ArrivalTimesTest, WhatIsAsUsualIsNeverTooLate) {
  ArrivalTimes arrivals(5.0);
  for (uint64_t round = 0; round < 8; ++round) Note(&arrivals, round, {0, 300});
  // The deviation is 0.
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(600));
  ArrivalTimes together(5.0);
  for (uint64_t round = 0; round < 8; ++round) Note(&together, round, {7, 7});
  EXPECT_EQ(together.Timeout(), ArrivalTimes::kMinTimeout);
}

TEST(ArrivalTimesTest, WithoutAFactorThereIsNoTimeout) {
  ArrivalTimes arrivals(0.0);
  for (uint64_t round = 0; round < 8; ++round) Note(&arrivals, round, {0, 300});
  EXPECT_EQ(arrivals.Timeout(), absl::ZeroDuration());
  EXPECT_EQ(arrivals.Of(1).last_rows, 8u);
}

// After a recovery workers come back one by one.
TEST(ArrivalTimesTest, TheFirstRoundOfAnEpochHasNoTimeout) {
  ArrivalTimes arrivals(5.0);
  uint64_t round = 0;
  for (; round < 8; ++round) Note(&arrivals, round, {0, 300});
  arrivals.BeginEpoch(round);
  EXPECT_EQ(arrivals.Timeout(), absl::ZeroDuration());
  Note(&arrivals, round, {0, 9000});
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(600));
}

TEST(ArrivalTimesTest, OnlyTheLastRoundsCount) {
  ArrivalTimes arrivals(5.0);
  Note(&arrivals, 0, std::vector<int>(20, 9000));
  uint64_t round = 1;
  for (; round < 20; ++round) Note(&arrivals, round, {0, 1000});
  EXPECT_EQ(arrivals.Timeout(), absl::Seconds(2));
  for (int i = 0; i < ArrivalTimes::kNumRounds; ++i) {
    Note(&arrivals, round++, {0, 100});
  }
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(200));
}

// Else the timeout would only see what it let in, and become shorter and
// shorter.
TEST(ArrivalTimesTest, LateRowsCountOnceTheyAreHere) {
  ArrivalTimes arrivals(5.0);
  for (uint64_t round = 0; round < 16; ++round) {
    Note(&arrivals, round, {0, 100});
    arrivals.NoteLate(2, round, At(2000));
    arrivals.NoteLate(3, round, At(2000));
  }
  Note(&arrivals, 16, {0, 100});
  EXPECT_GE(arrivals.Timeout(), absl::Seconds(2));
}

// --- Workers -----------------------------------------------------------------

TEST(ArrivalTimesTest, CountsWhoCameLast) {
  ArrivalTimes arrivals(0.0);
  Note(&arrivals, 0, {0, 10, 30});
  Note(&arrivals, 1, {40, 10, 10});
  Note(&arrivals, 2, {10, 10, 90});
  arrivals.NoteRound(3, {{0, At(0)}});  // alone
  EXPECT_EQ(arrivals.Of(0).last_rows, 1u);
  EXPECT_EQ(arrivals.Of(1).last_rows, 0u);
  EXPECT_EQ(arrivals.Of(2).last_rows, 2u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::Milliseconds(30));
  EXPECT_EQ(arrivals.Of(1).lateness, absl::ZeroDuration());
  EXPECT_EQ(arrivals.Of(7).last_rows, 0u);
  EXPECT_EQ(arrivals.Of(7).lateness, absl::ZeroDuration());
}

TEST(ArrivalTimesTest, ALateRowCountsOnce) {
  ArrivalTimes arrivals(0.0);
  Note(&arrivals, 0, {0, 10});
  arrivals.NoteLate(2, 0, At(500));
  arrivals.NoteLate(2, 0, At(900));  // the worker repeats its call
  arrivals.NoteLate(1, 0, At(900));  // so does one whose row is in
  EXPECT_EQ(arrivals.Of(2).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::Milliseconds(500));
  EXPECT_EQ(arrivals.Of(1).late_rows, 0u);
  EXPECT_EQ(arrivals.Of(2).last_rows, 0u);
}

TEST(ArrivalTimesTest, ARowForTheClosingRoundIsLateOnceThatHasEnded) {
  ArrivalTimes arrivals(0.0);
  arrivals.BeginEpoch(4);
  arrivals.NoteLate(2, 4, At(50));
  arrivals.NoteLate(2, 4, At(80));
  EXPECT_EQ(arrivals.Of(2).late_rows, 0u);
  Note(&arrivals, 4, {0, 10});
  EXPECT_EQ(arrivals.Of(2).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::Milliseconds(50));
}

// The round is open again after a recovery, and takes the row.
TEST(ArrivalTimesTest, ARoundThatDidNotEndMakesNobodyLate) {
  ArrivalTimes arrivals(0.0);
  arrivals.NoteLate(2, 0, At(50));
  arrivals.BeginEpoch(0);
  Note(&arrivals, 0, {0, 10, 60});
  EXPECT_EQ(arrivals.Of(2).late_rows, 0u);
  EXPECT_EQ(arrivals.Of(2).last_rows, 1u);
}

// Its outcome was lost with the connection; the round may contain its row.
TEST(ArrivalTimesTest, ACommitThatIsRepeatedAfterARecoveryIsNotLate) {
  ArrivalTimes arrivals(0.0);
  arrivals.BeginEpoch(8);  // a new process: round 7 was closed by another one
  arrivals.NoteLate(1, 7, At(50));
  EXPECT_EQ(arrivals.Of(1).late_rows, 0u);
  Note(&arrivals, 8, {0, 10});
  arrivals.BeginEpoch(10);  // round 9 was published without a word here
  arrivals.NoteLate(1, 9, At(50));
  EXPECT_EQ(arrivals.Of(1).late_rows, 0u);
}

TEST(ArrivalTimesTest, AfterARewindRoundsCountAgain) {
  ArrivalTimes arrivals(0.0);
  for (uint64_t round = 0; round < 9; ++round) Note(&arrivals, round, {0, 10});
  arrivals.BeginEpoch(3);
  arrivals.NoteRound(3, {{0, At(10000)}});
  arrivals.NoteLate(1, 3, At(10400));
  EXPECT_EQ(arrivals.Of(1).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(1).last_rows, 9u);
}

// A gradient that is more rounds late than are looked back on.
TEST(ArrivalTimesTest, VeryLateRowsCountWithoutATime) {
  ArrivalTimes arrivals(0.0);
  for (uint64_t round = 0; round < 40; ++round) Note(&arrivals, round, {0, 10});
  arrivals.NoteLate(2, 1, At(5000));
  EXPECT_EQ(arrivals.Of(2).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::ZeroDuration());
}

}  // namespace
}  // namespace agg
