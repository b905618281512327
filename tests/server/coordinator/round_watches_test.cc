#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/round_watches.h"

namespace agg {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000000000);

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> ranks(end - begin);
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

TEST(RanksTextTest, NamesRunsAndAbbreviates) {
  EXPECT_EQ(RanksText({}), "no rank");
  EXPECT_EQ(RanksText({7}), "rank 7");
  EXPECT_EQ(RanksText({1, 2}), "ranks 1,2");
  EXPECT_EQ(RanksText(Range(1, 32)), "ranks 1-31");
  EXPECT_EQ(RanksText({0, 2, 3, 5, 6, 7, 9}), "ranks 0,2,3,5-7,9");
  std::vector<int32_t> even;
  for (int32_t rank = 0; rank < 64; rank += 2) even.push_back(rank);
  EXPECT_EQ(RanksText(even), "ranks 0,2,4,6,8,10,12,14,16,18 and 22 more");
}

// The README's job with one worker.
TEST(WaitingTextTest, NamesWhoHasNotJoined) {
  Waiting waiting;
  waiting.expected = 32;
  waiting.joined = {0};
  waiting.seeded = true;
  EXPECT_EQ(WaitingText(waiting, kNow),
            "31 of 32 workers have not joined: ranks 1-31");
  waiting.joined = {0, 1, 5, 40};  // 40: an additional worker
  waiting.expected = 6;
  EXPECT_EQ(WaitingText(waiting, kNow),
            "2 of 6 workers have not joined: ranks 2,3");
  waiting.joined = Range(0, 6);
  EXPECT_EQ(WaitingText(waiting, kNow), "");
  waiting.joined = {0};
  waiting.started = true;  // start_timeout has passed
  EXPECT_EQ(WaitingText(waiting, kNow), "");
}

TEST(WaitingTextTest, NamesWhoHasNotSeeded) {
  Waiting waiting;
  waiting.started = true;
  waiting.joined = {2};
  EXPECT_EQ(WaitingText(waiting, kNow), "");
  waiting.seed_rank = 2;
  EXPECT_EQ(WaitingText(waiting, kNow), "rank 2 has not seeded the parameters");
}

TEST(WaitingTextTest, NamesWhoHasNotCommittedInWholeSeconds) {
  Waiting waiting;
  waiting.started = waiting.seeded = true;
  waiting.expected = 4;
  waiting.joined = Range(0, 4);
  waiting.round = 9;
  waiting.uncommitted = {1, 3};
  EXPECT_EQ(WaitingText(waiting, kNow), "");  // all compute
  waiting.rows_since = kNow - absl::Seconds(60) - absl::Nanoseconds(89564);
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 9 has waited 1m for ranks 1,3 (round_timeout is off)");
  waiting.has_round_timeout = true;
  EXPECT_EQ(WaitingText(waiting, kNow), "round 9 has waited 1m for ranks 1,3");
  waiting.num_needed = 2;  // all of them
  EXPECT_EQ(WaitingText(waiting, kNow), "round 9 has waited 1m for ranks 1,3");
  waiting.num_needed = 1;  // a quorum
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 9 has waited 1m for 1 of ranks 1,3");
  waiting.uncommitted.clear();
  EXPECT_EQ(WaitingText(waiting, kNow), "");
}

// Nobody is late, and yet the round waits.
TEST(WaitingTextTest, NamesTheFloorOnceSomebodyHasCommitted) {
  Waiting waiting;
  waiting.started = true;
  waiting.seeded = true;
  waiting.round = 7;
  waiting.floor = "waits: 1 of at least 2 workers (min_workers)";
  EXPECT_EQ(WaitingText(waiting, kNow), "");
  waiting.rows_since = kNow;
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 7 waits: 1 of at least 2 workers (min_workers)");
  WaitingReport report(absl::Seconds(5), absl::Seconds(60));
  EXPECT_EQ(report.Say(waiting, kNow), "");
  EXPECT_EQ(report.next_at(), kNow + absl::Seconds(5));
  EXPECT_THAT(report.Say(waiting, kNow + absl::Seconds(5)),
              testing::HasSubstr("round 7 waits"));
  EXPECT_EQ(report.next_at(), kNow + absl::Seconds(65));
}

// The others evaluate, and do not know that somebody waits.
TEST(WaitingTextTest, NamesWhoHasJoinedDuringARound) {
  Waiting waiting;
  waiting.started = waiting.seeded = true;
  waiting.expected = 3;
  waiting.joined = {0, 1, 2};
  waiting.round = 7;
  waiting.uncommitted = {0, 2};
  waiting.joining = {1};
  EXPECT_EQ(WaitingText(waiting, kNow),
            "rank 1 has joined during round 7 and waits for its end; ranks 0,2 "
            "have not committed");
  WaitingReport report(absl::Seconds(5), absl::Seconds(60));
  EXPECT_EQ(report.Say(waiting, kNow), "");
  EXPECT_EQ(report.next_at(), kNow + absl::Seconds(5));
  EXPECT_THAT(report.Say(waiting, kNow + absl::Seconds(5)),
              testing::HasSubstr("rank 1 has joined"));
  waiting.joining = {1, 2};
  waiting.uncommitted = {0};
  EXPECT_EQ(WaitingText(waiting, kNow),
            "ranks 1,2 have joined during round 7 and wait for its end; rank 0 "
            "has not committed");
  waiting.rows_since = kNow;  // then the usual line
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 7 has waited 0 for rank 0 (round_timeout is off)");
}

class WaitingReportTest : public ::testing::Test {
 protected:
  std::string SayAt(int seconds) {
    return report_.Say(waiting_, kNow + absl::Seconds(seconds));
  }
  absl::Time At(int seconds) const { return kNow + absl::Seconds(seconds); }

  WaitingReport report_{absl::Seconds(5), absl::Seconds(60)};
  Waiting waiting_;
};

TEST_F(WaitingReportTest, SaysSoonWhoHasNotJoinedAndRarelyAgain) {
  waiting_.expected = 3;
  EXPECT_EQ(SayAt(0), "");
  EXPECT_EQ(report_.next_at(), At(5));
  waiting_.joined = {0};  // progress: the quiet time begins again
  EXPECT_EQ(SayAt(4), "");
  EXPECT_EQ(report_.next_at(), At(9));
  EXPECT_EQ(SayAt(9), "2 of 3 workers have not joined: ranks 1,2");
  EXPECT_EQ(SayAt(10), "");
  EXPECT_EQ(report_.next_at(), At(69));
  EXPECT_EQ(SayAt(69), "2 of 3 workers have not joined: ranks 1,2");
  waiting_.joined = {0, 1, 2};
  EXPECT_EQ(SayAt(200), "");
  EXPECT_EQ(report_.next_at(), absl::InfiniteFuture());
}

TEST_F(WaitingReportTest, CanBeSwitchedOff) {
  report_ = WaitingReport(absl::ZeroDuration(), absl::ZeroDuration());
  waiting_.expected = 3;
  EXPECT_EQ(SayAt(0), "");
  EXPECT_EQ(SayAt(100000), "");
  EXPECT_EQ(report_.next_at(), absl::InfiniteFuture());
}

TEST_F(WaitingReportTest, SaysOfStragglersLaterAndOfEachRoundAnew) {
  waiting_.started = waiting_.seeded = true;
  waiting_.expected = 2;
  waiting_.joined = {0, 1};
  waiting_.uncommitted = {1};
  waiting_.rows_since = At(0);
  EXPECT_EQ(SayAt(30), "");
  EXPECT_EQ(report_.next_at(), At(60));
  EXPECT_EQ(SayAt(60),
            "round 0 has waited 1m for rank 1 (round_timeout is off)");
  waiting_.round = 1;
  waiting_.rows_since = At(70);
  EXPECT_EQ(SayAt(100), "");
  EXPECT_EQ(report_.next_at(), At(130));
}

bool Note(EqualRowsRun* run, std::vector<std::vector<int32_t>> ranks,
          bool applied = true) {
  RoundReport report;
  report.applied = applied;
  report.decision.equal_ranks = std::move(ranks);
  return run->Note(report);
}

TEST(EqualRowsRunTest, SaysItOnceAndNotAtFirst) {
  EqualRowsRun run;
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}, /*applied=*/false));  // it breaks no run
  EXPECT_TRUE(Note(&run, {{0, 1}}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}, {2, 3}}));
  EXPECT_FALSE(Note(&run, {{0, 1}, {2, 3}}));
  EXPECT_TRUE(Note(&run, {{0, 1}, {2, 3}}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {}));
}

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class RoundLineTest : public testing::Test {
 protected:
  RoundLine Line(const RoundReport& report) {
    run_.Note(report);
    return LineOf(report, run_);
  }
  std::string Text(const RoundReport& report) { return Line(report).text; }
  std::string Reason(const RoundReport& report) { return Line(report).reason; }

  static RoundReport Applied(const std::string& message) {
    RoundReport report;
    report.applied = true;
    report.rows.resize(5);
    report.message = message;
    return report;
  }

  static RoundReport WithOutlier(const std::string& norm = "9") {
    RoundReport report = Applied("excluded as outliers: rank 2 (" + norm + ")");
    report.decision.outliers.rows = {{2, 2, 9, 9}};
    report.decision.outliers.excluded = true;
    report.decision.excluded_ranks = {2};
    return report;
  }

  static RoundReport WithNan(int32_t rank) {
    RoundReport report =
        Applied(absl::StrCat("excluded non-finite rows of ranks ", rank));
    report.decision.excluded_ranks = {rank};
    return report;
  }

  SkippedRun run_{0};
};

TEST_F(RoundLineTest, ARoundWithAMessageHasALine) {
  EXPECT_EQ(Text(Applied("")), "");
  EXPECT_EQ(Text(Applied("one")), "one");
  RoundReport skipped = Applied("why");
  skipped.applied = false;
  EXPECT_EQ(Text(skipped), "why");
  EXPECT_EQ(Text(skipped), "");  // the second one: the tenth has a line
  for (int i = 3; i <= 9; ++i) Text(skipped);
  const RoundLine tenth = Line(skipped);
  EXPECT_EQ(tenth.text, "why; 10 rounds in a row were skipped");
}

// Such lines of a minute are one: a worker whose every row is NaN.
TEST_F(RoundLineTest, RoundsThatLackTheSameRowsHaveOneReason) {
  const std::string reason = Reason(WithNan(2));
  EXPECT_EQ(Reason(WithNan(2)), reason);
  EXPECT_NE(Reason(WithNan(3)), reason);
  RoundReport skipped = WithNan(2);
  skipped.applied = false;
  const std::string first = Reason(skipped);
  EXPECT_NE(first, reason);
  for (int i = 2; i <= 9; ++i) Reason(skipped);
  // In a run of them each line says that it is longer.
  EXPECT_NE(Reason(skipped), first);
}

TEST_F(RoundLineTest, WhatIsUsualInAJobHasOneReason) {
  const std::string usual = Reason(WithOutlier());
  EXPECT_EQ(Reason(WithOutlier("1234.5")), usual);
  RoundReport few = Applied("outliers were not looked for");
  few.decision.outliers.too_few_rows = true;
  EXPECT_EQ(Reason(few), usual);
  few = Applied("krum had fewer rows");
  few.decision.short_of_rows = true;
  EXPECT_EQ(Reason(few), usual);
  RoundReport narrowed = Applied("3 values of this version");
  narrowed.narrowed.num_infinite = 3;
  EXPECT_EQ(Reason(narrowed), usual);
}

TEST_F(RoundLineTest, WhatElseThereIsToSayHasItsOwn) {
  const std::string usual = Reason(WithOutlier());
  RoundReport report = WithOutlier();
  report.decision.excluded_ranks = {1, 2};  // 1 is not finite
  EXPECT_NE(Reason(report), usual);
  report = WithOutlier();
  report.decision.compensated = true;
  EXPECT_NE(Reason(report), usual);
  report = WithOutlier();
  report.not_finite.emplace();
  EXPECT_NE(Reason(report), usual);
  // Beside few vanished values.
  report = Applied("one");
  report.narrowed.num_compared = 5000;
  report.narrowed.num_vanished = 1;
  EXPECT_NE(Reason(report), usual);
}

}  // namespace
}  // namespace agg
