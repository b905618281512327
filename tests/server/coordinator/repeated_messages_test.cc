#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/round_watches.h"

namespace agg {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class RepeatedMessagesTest : public testing::Test {
 protected:
  std::string Next(const RoundReport& report, double seconds) {
    run_.Note(report);
    return lines_.Next(report, run_, At(seconds));
  }

  static RoundReport Applied(const std::string& message) {
    RoundReport report;
    report.applied = true;
    report.rows.resize(5);
    report.message = message;
    return report;
  }

  static RoundReport WithOutlier() {
    RoundReport report = Applied("excluded as outliers: rank 2");
    report.decision.outliers.rows = {{2, 2, 9, 9}};
    report.decision.outliers.excluded = true;
    report.decision.excluded_ranks = {2};
    return report;
  }

  SkippedRun run_{0};
  RepeatedMessages lines_;
};

TEST_F(RepeatedMessagesTest, EachRoundWithAMessageHasItsLine) {
  EXPECT_EQ(Next(Applied(""), 0), "");
  EXPECT_EQ(Next(Applied("one"), 0), "one");
  EXPECT_EQ(Next(Applied("two"), 0), "two");
  RoundReport skipped = Applied("why");
  skipped.applied = false;
  EXPECT_EQ(Next(skipped, 0), "why");
  EXPECT_EQ(Next(skipped, 0), "");  // the second one: the tenth has a line
}

TEST_F(RepeatedMessagesTest, WhatNarrowingLosesHasOneNowAndThen) {
  RoundReport report = Applied("3 values of this version");
  report.narrowed.num_infinite = 3;
  EXPECT_EQ(Next(report, 0), "3 values of this version");
  EXPECT_EQ(Next(report, 1), "");
  EXPECT_EQ(Next(report, 10),
            "3 values of this version; so it was in 1 rounds since the last "
            "such line");
  // Something else beside few vanished values has its line.
  RoundReport other = Applied("one");
  other.narrowed.num_compared = 5000;
  other.narrowed.num_vanished = 1;
  EXPECT_EQ(Next(other, 11), "one");
  EXPECT_EQ(Next(other, 11), "one");
}

TEST_F(RepeatedMessagesTest, OutliersHaveOneNowAndThen) {
  EXPECT_EQ(Next(WithOutlier(), 0), "excluded as outliers: rank 2");
  for (int i = 1; i <= 99; ++i) EXPECT_EQ(Next(WithOutlier(), 0.1 * i), "");
  EXPECT_EQ(Next(WithOutlier(), 10),
            "excluded as outliers: rank 2; so it was in 99 rounds since the "
            "last such line");
  EXPECT_EQ(Next(WithOutlier(), 20), "excluded as outliers: rank 2");
  RoundReport few = Applied("outliers were not looked for");
  few.decision.outliers.too_few_rows = true;
  EXPECT_EQ(Next(few, 21), "");
}

TEST_F(RepeatedMessagesTest, TooFewRowsHaveOneNowAndThen) {
  RoundReport few = Applied("krum had fewer rows");
  few.decision.short_of_rows = true;
  EXPECT_EQ(Next(few, 0), "krum had fewer rows");
  EXPECT_EQ(Next(few, 1), "");
  few.decision.outliers.too_few_rows = true;
  EXPECT_EQ(Next(few, 2), "");
  RoundReport both = WithOutlier();
  both.decision.short_of_rows = true;
  EXPECT_EQ(Next(both, 3), "");
  EXPECT_EQ(Next(few, 10),
            "krum had fewer rows; so it was in 3 rounds since the last such "
            "line");
  few.decision.compensated = true;
  EXPECT_NE(Next(few, 11), "");
}

TEST_F(RepeatedMessagesTest, WhatElseThereIsToSayIsSaid) {
  EXPECT_NE(Next(WithOutlier(), 0), "");
  RoundReport report = WithOutlier();
  report.decision.excluded_ranks = {1, 2};  // 1 is not finite
  EXPECT_NE(Next(report, 1), "");
  report = WithOutlier();
  report.decision.compensated = true;
  EXPECT_NE(Next(report, 1), "");
  report = WithOutlier();
  report.not_finite.emplace();
  EXPECT_NE(Next(report, 1), "");
}

}  // namespace
}  // namespace agg
