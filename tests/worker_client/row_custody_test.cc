// Every transition of a row that a worker owes (P27).
#include "worker_client/row_custody.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using State = RowCustody::State;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ShardLives kFirst{7, {11, 12, 13}};
const ShardLives kOneLost{8, {11, 99, 13}};
const ShardLives kNoneLost{9, {11, 12, 13}};

// Shard 2 has no slices.
RowCustody Custody() { return RowCustody({true, true, false}); }

RowCustody Acked() {
  RowCustody custody = Custody();
  custody.Begin(false, 3, 40);
  custody.Acknowledge(0, kFirst, true, 100);
  custody.Acknowledge(1, kFirst, true, 101);
  return custody;
}

TEST(RowCustodyTest, ARowIsOwedUntilAllShardsHaveIt) {
  RowCustody custody = Custody();
  EXPECT_EQ(custody.state(), State::kNone);
  EXPECT_THAT(custody.Owed(kFirst), IsEmpty());
  custody.Begin(false, 3, 40);
  EXPECT_EQ(custody.state(), State::kPushing);
  EXPECT_THAT(custody.Owed(kFirst), ElementsAre(0, 1));
  custody.Acknowledge(1, kFirst, true, 101);
  EXPECT_THAT(custody.Owed(kFirst), ElementsAre(0));
  EXPECT_THAT(custody.row_crc32c(), IsEmpty());
  custody.Acknowledge(0, kFirst, true, 100);
  EXPECT_EQ(custody.state(), State::kAcked);
  EXPECT_THAT(custody.row_crc32c(), ElementsAre(100, 101, 0));
  custody.Commit();
  EXPECT_EQ(custody.state(), State::kCommitted);
  custody.Know();
  EXPECT_EQ(custody.state(), State::kKnown);
  custody.NewEpoch(kOneLost);
  EXPECT_EQ(custody.state(), State::kKnown);
}

TEST(RowCustodyTest, ANewEpochOwesToTheShardsThatLostIt) {
  for (const bool committed : {false, true}) {
    RowCustody custody = Acked();
    if (committed) custody.Commit();
    custody.NewEpoch(kOneLost);
    EXPECT_EQ(custody.state(), State::kPushing);
    EXPECT_TRUE(custody.lost());
    EXPECT_THAT(custody.Owed(kOneLost), ElementsAre(1));
    EXPECT_EQ(custody.row().attempt, 0u);  // the same gradient
    custody.Acknowledge(1, kOneLost, true, 101);
    EXPECT_EQ(custody.state(), State::kAcked);
    EXPECT_FALSE(custody.lost());
    EXPECT_THAT(custody.row_crc32c(), ElementsAre(100, 101, 0));
  }
}

TEST(RowCustodyTest, WhereNothingWasLostItIsCommittedAgain) {
  RowCustody custody = Acked();
  custody.Commit();
  custody.NewEpoch(kNoneLost);
  EXPECT_EQ(custody.state(), State::kAcked);
  EXPECT_FALSE(custody.lost());
  EXPECT_THAT(custody.Owed(kNoneLost), IsEmpty());
}

TEST(RowCustodyTest, AHalfPushedRowGoesOnWithoutWhatIsSafe) {
  RowCustody custody = Custody();
  custody.Begin(false, 3, 40);
  custody.Acknowledge(0, kFirst, true, 100);
  custody.NewEpoch(kOneLost);
  EXPECT_EQ(custody.state(), State::kPushing);
  EXPECT_FALSE(custody.lost());  // it had never been everywhere
  EXPECT_THAT(custody.Owed(kOneLost), ElementsAre(1));
}

TEST(RowCustodyTest, ClosedIsNoReceiptInAnotherEpoch) {
  RowCustody custody = Custody();
  custody.Begin(false, 3, 40);
  custody.Acknowledge(0, kFirst, false, absl::nullopt);
  custody.Acknowledge(1, kFirst, true, 101);
  EXPECT_EQ(custody.state(), State::kAcked);
  EXPECT_THAT(custody.row_crc32c(), IsEmpty());
  custody.NewEpoch(kNoneLost);
  EXPECT_THAT(custody.Owed(kNoneLost), ElementsAre(0));
}

TEST(RowCustodyTest, LivesThatAreNotKnownAreOthers) {
  const ShardLives unknown{7, {}}, zero{8, {0, 0, 0}};
  RowCustody custody = Custody();
  custody.Begin(false, 3, 40);
  custody.Acknowledge(0, unknown, true, 100);
  custody.Acknowledge(1, unknown, true, 101);
  custody.NewEpoch(zero);
  EXPECT_THAT(custody.Owed(zero), ElementsAre(0, 1));
  // The same epoch once more has lost nothing.
  custody.Acknowledge(0, zero, true, 100);
  custody.Acknowledge(1, zero, true, 101);
  custody.NewEpoch(zero);
  EXPECT_THAT(custody.Owed(zero), IsEmpty());
}

// Two threads: one pushes in an epoch that has ended, and the other has caught
// up with the next one.
TEST(RowCustodyTest, ALateReceiptIsJudgedByTheNewestEpoch) {
  RowCustody custody = Custody();
  custody.Begin(false, 3, 40);
  custody.Acknowledge(1, kFirst, true, 101);
  custody.NewEpoch(kOneLost);
  custody.Acknowledge(0, kFirst, true, 100);
  EXPECT_EQ(custody.state(), State::kPushing);          // shard 1 has lost it
  EXPECT_THAT(custody.Owed(kOneLost), ElementsAre(1));  // shard 0 lives
  custody.Acknowledge(1, kOneLost, true, 101);
  EXPECT_EQ(custody.state(), State::kAcked);
}

TEST(RowCustodyTest, ARowThatIsLostIsOwedWhicheverEpochAsks) {
  RowCustody custody = Acked();
  custody.NewEpoch(kOneLost);
  ASSERT_TRUE(custody.lost());
  EXPECT_THAT(custody.Owed(kFirst), ElementsAre(1));
}

TEST(RowCustodyTest, WhatIsForgottenIsNotOwed) {
  RowCustody custody = Acked();
  custody.Commit();
  custody.Forget();
  EXPECT_EQ(custody.state(), State::kNone);
  custody.NewEpoch(kOneLost);
  EXPECT_EQ(custody.state(), State::kNone);
  EXPECT_THAT(custody.Owed(kOneLost), IsEmpty());
  EXPECT_FALSE(custody.lost());
}

TEST(RowCustodyTest, AttemptsGrowBySessionAlsoAfterARewind) {
  RowCustody custody = Custody();
  EXPECT_EQ(custody.Begin(false, 3, 40).attempt, 0u);
  EXPECT_EQ(custody.Begin(false, 3, 40).attempt, 1u);
  EXPECT_EQ(custody.Begin(false, 4, 40).attempt, 0u);
  custody.Forget();
  EXPECT_EQ(custody.Begin(false, 3, 40).attempt, 2u);
  EXPECT_EQ(custody.Begin(true, 0, 40).attempt, 0u);  // the seed has its own
  EXPECT_EQ(custody.Begin(false, 3, 41).attempt, 0u);
}

TEST(RowCustodyTest, TheLastRoundsAreRememberedByName) {
  RowCustody custody = Custody();
  for (uint64_t round = 100; round < 120; ++round) {
    custody.Begin(false, round, 40);
  }
  custody.Begin(false, 3, 41);  // after a rewind
  EXPECT_EQ(custody.Find(false, 119).session, 40u);
  EXPECT_EQ(custody.Find(false, 3).session, 41u);
  EXPECT_EQ(custody.Find(false, 100).session, 0u);
  EXPECT_EQ(custody.Find(true, 3).session, 0u);
}

}  // namespace
}  // namespace agg
