// Every transition of a row that a worker owes (P27).
#include "worker_client/row_ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using State = RowLedger::State;

const ShardLives kFirst{7, {11, 12, 13}};
const ShardLives kOneLost{8, {11, 99, 13}};
const ShardLives kNoneLost{9, {11, 12, 13}};

// Shard 2 has no slices.
RowLedger NewLedger() { return RowLedger({true, true, false}); }

RowLedger Acked() {
  RowLedger ledger = NewLedger();
  ledger.Begin(false, 3, 40);
  ledger.Acknowledge(0, kFirst, true, 100);
  ledger.Acknowledge(1, kFirst, true, 101);
  return ledger;
}

TEST(RowLedgerTest, ARowIsOwedUntilAllShardsHaveIt) {
  RowLedger ledger = NewLedger();
  EXPECT_EQ(ledger.state(), State::kNone);
  EXPECT_THAT(ledger.Owed(kFirst), IsEmpty());
  ledger.Begin(false, 3, 40);
  EXPECT_EQ(ledger.state(), State::kPushing);
  EXPECT_THAT(ledger.Owed(kFirst), ElementsAre(0, 1));
  ledger.Acknowledge(1, kFirst, true, 101);
  EXPECT_THAT(ledger.Owed(kFirst), ElementsAre(0));
  EXPECT_THAT(ledger.row_crc32c(), IsEmpty());
  ledger.Acknowledge(0, kFirst, true, 100);
  EXPECT_EQ(ledger.state(), State::kAcked);
  EXPECT_THAT(ledger.row_crc32c(), ElementsAre(100, 101, 0));
  ledger.Commit();
  EXPECT_EQ(ledger.state(), State::kCommitted);
  ledger.Know();
  EXPECT_EQ(ledger.state(), State::kKnown);
  ledger.NewEpoch(kOneLost);
  EXPECT_EQ(ledger.state(), State::kKnown);
}

TEST(RowLedgerTest, ANewEpochOwesToTheShardsThatLostIt) {
  for (const bool committed : {false, true}) {
    RowLedger ledger = Acked();
    if (committed) ledger.Commit();
    ledger.NewEpoch(kOneLost);
    EXPECT_EQ(ledger.state(), State::kPushing);
    EXPECT_TRUE(ledger.lost());
    EXPECT_THAT(ledger.Owed(kOneLost), ElementsAre(1));
    EXPECT_EQ(ledger.row().attempt, 0u);  // the same gradient
    ledger.Acknowledge(1, kOneLost, true, 101);
    EXPECT_EQ(ledger.state(), State::kAcked);
    EXPECT_FALSE(ledger.lost());
    EXPECT_THAT(ledger.row_crc32c(), ElementsAre(100, 101, 0));
  }
}

TEST(RowLedgerTest, WhereNothingWasLostItIsCommittedAgain) {
  RowLedger ledger = Acked();
  ledger.Commit();
  ledger.NewEpoch(kNoneLost);
  EXPECT_EQ(ledger.state(), State::kAcked);
  EXPECT_FALSE(ledger.lost());
  EXPECT_THAT(ledger.Owed(kNoneLost), IsEmpty());
}

TEST(RowLedgerTest, AHalfPushedRowGoesOnWithoutWhatIsSafe) {
  RowLedger ledger = NewLedger();
  ledger.Begin(false, 3, 40);
  ledger.Acknowledge(0, kFirst, true, 100);
  ledger.NewEpoch(kOneLost);
  EXPECT_EQ(ledger.state(), State::kPushing);
  EXPECT_FALSE(ledger.lost());  // it had never been everywhere
  EXPECT_THAT(ledger.Owed(kOneLost), ElementsAre(1));
}

TEST(RowLedgerTest, ClosedIsNoReceiptInAnotherEpoch) {
  RowLedger ledger = NewLedger();
  ledger.Begin(false, 3, 40);
  ledger.Acknowledge(0, kFirst, false, absl::nullopt);
  ledger.Acknowledge(1, kFirst, true, 101);
  EXPECT_EQ(ledger.state(), State::kAcked);
  EXPECT_THAT(ledger.row_crc32c(), IsEmpty());
  ledger.NewEpoch(kNoneLost);
  EXPECT_THAT(ledger.Owed(kNoneLost), ElementsAre(0));
}

TEST(RowLedgerTest, LivesThatAreNotKnownAreOthers) {
  const ShardLives unknown{7, {}}, zero{8, {0, 0, 0}};
  RowLedger ledger = NewLedger();
  ledger.Begin(false, 3, 40);
  ledger.Acknowledge(0, unknown, true, 100);
  ledger.Acknowledge(1, unknown, true, 101);
  ledger.NewEpoch(zero);
  EXPECT_THAT(ledger.Owed(zero), ElementsAre(0, 1));
  // The same epoch once more has lost nothing.
  ledger.Acknowledge(0, zero, true, 100);
  ledger.Acknowledge(1, zero, true, 101);
  ledger.NewEpoch(zero);
  EXPECT_THAT(ledger.Owed(zero), IsEmpty());
}

// Two threads: one pushes in an epoch that has ended, and the other has caught
// up with the next one.
TEST(RowLedgerTest, ALateReceiptIsJudgedByTheNewestEpoch) {
  RowLedger ledger = NewLedger();
  ledger.Begin(false, 3, 40);
  ledger.Acknowledge(1, kFirst, true, 101);
  ledger.NewEpoch(kOneLost);
  ledger.Acknowledge(0, kFirst, true, 100);
  EXPECT_EQ(ledger.state(), State::kPushing);          // shard 1 has lost it
  EXPECT_THAT(ledger.Owed(kOneLost), ElementsAre(1));  // shard 0 lives
  ledger.Acknowledge(1, kOneLost, true, 101);
  EXPECT_EQ(ledger.state(), State::kAcked);
}

TEST(RowLedgerTest, ARowThatIsLostIsOwedWhicheverEpochAsks) {
  RowLedger ledger = Acked();
  ledger.NewEpoch(kOneLost);
  ASSERT_TRUE(ledger.lost());
  EXPECT_THAT(ledger.Owed(kFirst), ElementsAre(1));
}

TEST(RowLedgerTest, WhatIsForgottenIsNotOwed) {
  RowLedger ledger = Acked();
  ledger.Commit();
  ledger.Forget();
  EXPECT_EQ(ledger.state(), State::kNone);
  ledger.NewEpoch(kOneLost);
  EXPECT_EQ(ledger.state(), State::kNone);
  EXPECT_THAT(ledger.Owed(kOneLost), IsEmpty());
  EXPECT_FALSE(ledger.lost());
}

TEST(RowLedgerTest, AttemptsGrowBySessionAlsoAfterARewind) {
  RowLedger ledger = NewLedger();
  EXPECT_EQ(ledger.Begin(false, 3, 40).attempt, 0u);
  EXPECT_EQ(ledger.Begin(false, 3, 40).attempt, 1u);
  EXPECT_EQ(ledger.Begin(false, 4, 40).attempt, 0u);
  ledger.Forget();
  EXPECT_EQ(ledger.Begin(false, 3, 40).attempt, 2u);
  EXPECT_EQ(ledger.Begin(true, 0, 40).attempt, 0u);  // the seed has its own
  EXPECT_EQ(ledger.Begin(false, 3, 41).attempt, 0u);
}

TEST(RowLedgerTest, TheLastRoundsAreRememberedByName) {
  RowLedger ledger = NewLedger();
  for (uint64_t round = 100; round < 120; ++round) {
    ledger.Begin(false, round, 40);
  }
  ledger.Begin(false, 3, 41);  // after a rewind
  EXPECT_EQ(ledger.Find(false, 119).session, 40u);
  EXPECT_EQ(ledger.Find(false, 3).session, 41u);
  EXPECT_EQ(ledger.Find(false, 100).session, 0u);
  EXPECT_EQ(ledger.Find(true, 3).session, 0u);
}

constexpr uint64_t kSession = 7;

RowName Row(uint64_t round, uint32_t attempt = 0) {
  return {/*seed=*/false, round, kSession, attempt};
}

TEST(RowPlacementTest, EachRoundsFirstGradientIsInPlace) {
  RowPlacement placement;
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(placement.Begin(Row(round), false));
    EXPECT_TRUE(placement.Begin(Row(round), false));  // again, the same bytes
  }
}

TEST(RowPlacementTest, ASeedIsSent) {
  RowPlacement placement;
  EXPECT_FALSE(placement.Begin({true, 0, kSession, 0}, false));
}

// The shard may be reading the first one.
TEST(RowPlacementTest, ASecondGradientOfARoundIsSent) {
  RowPlacement placement;
  EXPECT_TRUE(placement.Begin(Row(3), false));
  placement.Land(Row(3));
  EXPECT_FALSE(placement.Begin(Row(3, 1), false));
  placement.Land(Row(3, 1));
  EXPECT_TRUE(placement.Begin(Row(4), false));
}

// The shard may be reading that of the newer one, whose outcome is not known to
// a worker that has gone back to an older version.
TEST(RowPlacementTest, AGradientOfAnEarlierRoundIsSent) {
  RowPlacement placement;
  EXPECT_TRUE(placement.Begin(Row(4), false));
  EXPECT_FALSE(placement.Begin(Row(3), false));
  EXPECT_FALSE(placement.Begin(Row(4), false));
  placement.Land(Row(4));
  EXPECT_TRUE(placement.Begin(Row(5), false));
}

// The shard may still be writing.
TEST(RowPlacementTest, WhatTheShardWritesIsWaitedFor) {
  RowPlacement placement;
  EXPECT_FALSE(placement.Begin(Row(3, 1), false));
  EXPECT_FALSE(placement.Begin(Row(4), false));
  placement.Land(Row(3, 1));  // too late to say anything
  EXPECT_FALSE(placement.Begin(Row(5), false));
  placement.Land(Row(5));
  EXPECT_TRUE(placement.Begin(Row(6), false));
}

TEST(RowPlacementTest, ZerosOfTensorsThatAreLeftOutAreWaitedFor) {
  RowPlacement placement;
  EXPECT_TRUE(placement.Begin(Row(3), true));
  EXPECT_FALSE(placement.Begin(Row(4), false));
  placement.Land(Row(4));
  EXPECT_TRUE(placement.Begin(Row(5), true));
  placement.Land(Row(5));
  EXPECT_TRUE(placement.Begin(Row(6), false));
}

// A row that was dropped, since its round was closed, was written by nobody
// but its worker.
TEST(RowPlacementTest, ARowThatCameTooLateCostsNothing) {
  RowPlacement placement;
  EXPECT_TRUE(placement.Begin(Row(3), false));
  EXPECT_TRUE(placement.Begin(Row(4), false));
}

}  // namespace
}  // namespace agg
