#include "server/coordinator/close_policy.h"

#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

constexpr absl::Time kOpened = absl::UnixEpoch();
absl::Time At(int seconds) { return kOpened + absl::Seconds(seconds); }
constexpr int kNever = -1;

struct Case {
  std::string name;
  // Options: expected, at least, start_timeout, round_timeout (seconds).
  int workers, min_workers, start_timeout, round_timeout;
  // Snapshot: started, members, waiting, contributions, joining, since.
  bool started;
  int members, waiting, contributions, joining, since;
  int now;
  // Expected decision.
  bool start, close;
  int ask_again;
};

class ClosePolicyTest : public testing::TestWithParam<Case> {};

TEST_P(ClosePolicyTest, Decides) {
  const Case& c = GetParam();
  CloseOptions options;
  options.workers = c.workers;
  options.min_workers = c.min_workers;
  options.start_timeout = absl::Seconds(c.start_timeout);
  options.round_timeout = absl::Seconds(c.round_timeout);
  CloseSnapshot snapshot;
  snapshot.started = c.started;
  snapshot.num_members = c.members;
  snapshot.num_waiting = c.waiting;
  snapshot.num_contributions = c.contributions;
  snapshot.num_joining = c.joining;
  snapshot.num_live = c.members + c.joining;
  snapshot.num_in = snapshot.num_live;
  snapshot.opened_at = kOpened;
  snapshot.waiting_since = At(c.since);
  const CloseDecision decision = DecideClose(options, snapshot, At(c.now));
  EXPECT_EQ(decision.start, c.start);
  EXPECT_EQ(decision.close, c.close);
  EXPECT_EQ(decision.ask_again_at,
            c.ask_again == kNever ? absl::InfiniteFuture() : At(c.ask_again));
}

INSTANTIATE_TEST_SUITE_P(
    Start, ClosePolicyTest,
    testing::Values(
        Case{"TooFew", 3, 3, 0, 0, false, 2, 0, 2, 0, 1, 9, false, false,
             kNever},
        Case{"Enough", 3, 3, 0, 0, false, 3, 3, 0, 0, 0, 9, true, false,
             kNever},
        Case{"EnoughAndCommitted", 3, 3, 0, 0, false, 3, 0, 3, 0, 1, 9, true,
             true, kNever},
        Case{"TimeoutNotYet", 3, 2, 10, 0, false, 2, 0, 2, 0, 1, 9, false,
             false, 10},
        Case{"TimeoutWithMinimum", 3, 2, 10, 0, false, 2, 0, 2, 0, 1, 10, true,
             true, kNever},
        Case{"TimeoutBelowMinimum", 3, 2, 10, 0, false, 1, 0, 1, 0, 1, 10,
             false, false, kNever},
        // The first commit is long ago, but the job starts only now.
        Case{"StartIsNotALateRow", 2, 2, 0, 5, false, 2, 1, 1, 0, 0, 100, true,
             false, 105}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Close, ClosePolicyTest,
    testing::Values(Case{"NobodyCommitted", 2, 1, 0, 0, true, 2, 2, 0, 0, 0, 99,
                         true, false, kNever},
                    Case{"OneWaiting", 2, 1, 0, 0, true, 2, 1, 1, 0, 1, 99,
                         true, false, kNever},
                    Case{"AllCommitted", 2, 1, 0, 0, true, 2, 0, 2, 0, 1, 1,
                         true, true, kNever},
                    Case{"FewerThanExpectedIsFine", 5, 1, 0, 0, true, 1, 0, 1,
                         0, 1, 1, true, true, kNever},
                    Case{"RoundTimeoutNotYet", 2, 1, 0, 7, true, 2, 1, 1, 0, 3,
                         9, true, false, 10},
                    Case{"RoundTimeout", 2, 1, 0, 7, true, 2, 1, 1, 0, 3, 10,
                         true, true, kNever},
                    Case{"RoundTimeoutNeedsARow", 2, 1, 0, 7, true, 2, 2, 0, 0,
                         0, 99, true, false, kNever},
                    Case{"EverybodyGone", 2, 1, 0, 0, true, 0, 0, 0, 0, 0, 9,
                         true, false, kNever},
                    Case{"GoneButOthersWaitForTheNextRound", 2, 1, 0, 0, true,
                         0, 0, 0, 1, 0, 9, true, true, kNever},
                    Case{"JoinersDoNotCloseAnOpenRound", 2, 1, 0, 0, true, 1, 1,
                         0, 1, 0, 9, true, false, kNever}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// --- A quorum, and the two timeouts ------------------------------------------

// Four are in; two have committed at 1 second.
class DecideCloseQuorumTest : public testing::Test {
 protected:
  DecideCloseQuorumTest() {
    options_.workers = 4;
    snapshot_.started = true;
    snapshot_.num_members = snapshot_.num_live = snapshot_.num_in = 4;
    snapshot_.num_contributions = 2;
    snapshot_.num_waiting = 2;
    snapshot_.waiting_since = At(1);
  }
  CloseDecision DecideAt(int now) {
    return DecideClose(options_, snapshot_, At(now));
  }

  CloseOptions options_;
  CloseSnapshot snapshot_;
};

TEST_F(DecideCloseQuorumTest, SoManyRowsCloseARound) {
  options_.quorum = 3;
  EXPECT_FALSE(DecideAt(99).close);
  EXPECT_EQ(DecideAt(99).ask_again_at, absl::InfiniteFuture());
  options_.quorum = 2;
  EXPECT_TRUE(DecideAt(1).close);
  options_.quorum = 1;  // the second one came before the round could close
  EXPECT_TRUE(DecideAt(1).close);
}

TEST_F(DecideCloseQuorumTest, AboveTheMembersItMeansAll) {
  options_.quorum = 9;
  EXPECT_FALSE(DecideAt(99).close);
  snapshot_.num_members = 2;
  snapshot_.num_waiting = 0;
  EXPECT_TRUE(DecideAt(1).close);
}

TEST_F(DecideCloseQuorumTest, NothingClosesBeforeTheStartOrBelowTheFloor) {
  options_.quorum = 2;
  snapshot_.started = false;
  options_.workers = 5;
  EXPECT_FALSE(DecideAt(99).close);
  snapshot_.started = true;
  options_.min_workers = 5;
  EXPECT_FALSE(DecideAt(99).close);
  options_.floor_policy = FloorPolicy::kWarn;
  EXPECT_TRUE(DecideAt(99).close);
}

TEST_F(DecideCloseQuorumTest, TheShorterTimeoutHolds) {
  EXPECT_EQ(TimeoutOf(options_, snapshot_), absl::ZeroDuration());
  snapshot_.usual_timeout = absl::Seconds(3);
  EXPECT_EQ(TimeoutOf(options_, snapshot_), absl::Seconds(3));
  EXPECT_FALSE(DecideAt(3).close);
  EXPECT_EQ(DecideAt(3).ask_again_at, At(4));
  EXPECT_TRUE(DecideAt(4).close);
  options_.round_timeout = absl::Seconds(2);
  EXPECT_EQ(TimeoutOf(options_, snapshot_), absl::Seconds(2));
  EXPECT_TRUE(DecideAt(3).close);
  options_.round_timeout = absl::Seconds(5);
  EXPECT_EQ(TimeoutOf(options_, snapshot_), absl::Seconds(3));
  snapshot_.usual_timeout = absl::ZeroDuration();
  EXPECT_EQ(TimeoutOf(options_, snapshot_), absl::Seconds(5));
}

TEST_F(DecideCloseQuorumTest, ATimeoutClosesWithFewerRowsThanTheQuorum) {
  options_.quorum = 3;
  snapshot_.usual_timeout = absl::Seconds(3);
  EXPECT_TRUE(DecideAt(4).close);
}

// --- The floor ---------------------------------------------------------------

// Two workers at least; one is in, and has committed.
class DecideCloseFloorTest : public testing::Test {
 protected:
  DecideCloseFloorTest() {
    options_.workers = 3;
    options_.min_workers = 2;
    options_.floor_timeout = absl::Seconds(60);
    snapshot_.started = true;
    snapshot_.num_members = 1;
    snapshot_.num_contributions = 1;
    snapshot_.num_live = 1;
    snapshot_.num_in = 1;
    snapshot_.waiting_since = At(1);
    snapshot_.below_floor_since = At(1);
  }
  CloseDecision DecideAt(int now) {
    return DecideClose(options_, snapshot_, At(now));
  }

  CloseOptions options_;
  CloseSnapshot snapshot_;
};

TEST_F(DecideCloseFloorTest, TooFewWait) {
  options_.round_timeout = absl::Seconds(5);  // is about rows, not workers
  const CloseDecision decision = DecideAt(1000);
  EXPECT_FALSE(decision.close);
  EXPECT_FALSE(decision.fail);
  EXPECT_EQ(decision.ask_again_at, absl::InfiniteFuture());
}

TEST_F(DecideCloseFloorTest, EnoughGoOn) {
  snapshot_.num_in = 2;
  EXPECT_TRUE(DecideAt(2).close);
}

TEST_F(DecideCloseFloorTest, ARowOfALostWorkerCounts) {
  snapshot_.num_contributions = 2;
  snapshot_.num_members = 2;
  snapshot_.num_in = 2;
  EXPECT_TRUE(DecideAt(2).close);
}

TEST_F(DecideCloseFloorTest, AWarningDoesNotHoldRounds) {
  options_.floor_policy = FloorPolicy::kWarn;
  EXPECT_TRUE(DecideAt(2).close);
}

TEST_F(DecideCloseFloorTest, FailsAfterTheTimeout) {
  options_.floor_policy = FloorPolicy::kFail;
  EXPECT_FALSE(DecideAt(60).close);
  EXPECT_FALSE(DecideAt(60).fail);
  EXPECT_EQ(DecideAt(60).ask_again_at, At(61));
  EXPECT_TRUE(DecideAt(61).fail);
  EXPECT_FALSE(DecideAt(61).close);
}

TEST_F(DecideCloseFloorTest, NobodyIsMissingWhenAllHaveLeft) {
  snapshot_.num_live = 0;
  snapshot_.all_left = true;
  EXPECT_TRUE(DecideAt(2).close);
}

TEST_F(DecideCloseFloorTest, AnEmptyRoundLetsThoseInWhoWait) {
  snapshot_.num_members = 0;
  snapshot_.num_contributions = 0;
  snapshot_.num_joining = 1;
  EXPECT_TRUE(DecideAt(2).close);
}

TEST_F(DecideCloseFloorTest, WhoHasGoneBeforeTheStartDoesNotCount) {
  options_.start_timeout = absl::Seconds(10);
  snapshot_.started = false;
  snapshot_.opened_at = kOpened;
  snapshot_.num_members = 2;  // one row, of a worker that has gone
  snapshot_.num_in = 2;
  EXPECT_FALSE(DecideAt(20).start);
}

}  // namespace
}  // namespace agg
