// Every transition of a row that a worker owes (P27).
#include "worker_client/row_ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using State = RowLedger::State;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace agg
