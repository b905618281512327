#include "server/ingest/arrival_ledger.h"

#include "gtest/gtest.h"
#include "proto/crc32c.h"

namespace agg {
namespace {

constexpr uint64_t kA = 11;
constexpr uint64_t kB = 22;

// Row 0 of a ledger with two slices.
class ArrivalLedgerTest : public testing::Test {
 protected:
  void Land(uint64_t session, uint64_t round) {
    ASSERT_TRUE(ledger_.Own(0, {session, round}));
    for (int slice : {0, 1}) {
      ASSERT_TRUE(ledger_.ClaimSlice(0, slice));
      ledger_.EndClaim(0, slice, true);
    }
  }

  ArrivalLedger ledger_{2, 2};
};

TEST(ArrivalLedgerBytesTest, ArePlannedAsTheyAreTaken) {
  constexpr int kNumRows = 5;
  constexpr int kNumSlices = 1000;
  ArrivalLedger ledger(kNumRows, kNumSlices);
  EXPECT_EQ(ledger.bytes(), ArrivalLedger::Bytes(kNumRows, kNumSlices, 0));
  for (int row = 0; row < kNumRows; ++row) {
    ASSERT_TRUE(ledger.Own(row, {kA, 5}));
    EXPECT_EQ(ledger.bytes(),
              ArrivalLedger::Bytes(kNumRows, kNumSlices, row + 1));
  }
  EXPECT_GT(ledger.bytes(), kNumRows * kNumSlices * (1 + 4));
  // Another gradient takes nothing more.
  const int64_t before = ledger.bytes();
  ASSERT_TRUE(ledger.Own(0, {kA, 6}));
  EXPECT_EQ(ledger.bytes(), before);
}

TEST_F(ArrivalLedgerTest, SlicesGoFromEmptyToLanded) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  EXPECT_FALSE(ledger_.Busy(0, 0));
  EXPECT_TRUE(ledger_.ClaimSlice(0, 0));
  EXPECT_TRUE(ledger_.Busy(0, 0));
  EXPECT_FALSE(ledger_.Busy(0, 1));
  ledger_.EndClaim(0, 0, true);
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5}));
  EXPECT_TRUE(ledger_.ClaimSlice(0, 1));
  ledger_.EndClaim(0, 1, true);
  EXPECT_TRUE(ledger_.Complete(0, {kA, 5}));
  EXPECT_FALSE(ledger_.Complete(0, {kA, 6}));
  EXPECT_FALSE(ledger_.Complete(0, {kB, 5}));
  EXPECT_FALSE(ledger_.Complete(1, {kA, 5}));
}

// As a caller may name it who leaves all out.
TEST_F(ArrivalLedgerTest, AGradientOfNobodyLandsToo) {
  Land(/*session=*/0, /*round=*/0);
  EXPECT_TRUE(ledger_.Complete(0, {0, 0}));
}

TEST_F(ArrivalLedgerTest, ALandedSliceIsNotClaimedAgain) {
  Land(kA, 5);
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  EXPECT_FALSE(ledger_.ClaimSlice(0, 0));
  EXPECT_TRUE(ledger_.Complete(0, {kA, 5}));
}

TEST_F(ArrivalLedgerTest, AFailedCopyEmptiesTheSlice) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 0));
  ledger_.EndClaim(0, 0, false);
  EXPECT_FALSE(ledger_.Busy(0, 0));
  EXPECT_TRUE(ledger_.ClaimSlice(0, 0));
}

TEST_F(ArrivalLedgerTest, TheNextRoundBeginsEmpty) {
  Land(kA, 5);
  ASSERT_TRUE(ledger_.Own(0, {kA, 6}));
  EXPECT_TRUE(ledger_.ClaimSlice(0, 0));
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5}));
}

TEST_F(ArrivalLedgerTest, AnotherOwnerWaitsForCopiesUnderWay) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 0));
  EXPECT_FALSE(ledger_.Own(0, {kB, 5}));
  EXPECT_FALSE(ledger_.Own(0, {kA, 6}));
  ledger_.EndClaim(0, 0, true);
  EXPECT_TRUE(ledger_.Own(0, {kB, 5}));
}

TEST_F(ArrivalLedgerTest, ErasesOnlyTheSessionsBytes) {
  Land(kA, 5);
  ledger_.Erase(0, kB);
  EXPECT_TRUE(ledger_.Complete(0, {kA, 5}));
  ledger_.Erase(0, kA);
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5}));
}

TEST_F(ArrivalLedgerTest, ErasesACopyUnderWayWhenItEnds) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 0));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 1));
  ledger_.EndClaim(0, 1, true);
  ledger_.Erase(0, kA);
  EXPECT_FALSE(ledger_.Own(0, {kA, 5}));
  ledger_.EndClaim(0, 0, true);
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5}));
  ASSERT_TRUE(ledger_.Own(0, {kB, 5}));
  EXPECT_TRUE(ledger_.ClaimSlice(0, 1));
}

TEST_F(ArrivalLedgerTest, AHeldRowIsNobodyElsesInItsRound) {
  Land(kA, 5);
  EXPECT_FALSE(ledger_.HeldByAnother(0, kB, 5));
  ledger_.Hold(0, kB);  // not its row
  EXPECT_FALSE(ledger_.HeldByAnother(0, kB, 5));
  ledger_.Hold(0, kA);
  EXPECT_TRUE(ledger_.HeldByAnother(0, kB, 5));
  EXPECT_TRUE(ledger_.HeldByAnother(0, kB, 4));
  EXPECT_FALSE(ledger_.HeldByAnother(0, kA, 5));
  EXPECT_FALSE(ledger_.HeldByAnother(0, kB, 6));
  ASSERT_TRUE(ledger_.Own(0, {kB, 6}));
  EXPECT_FALSE(ledger_.HeldByAnother(0, kA, 6));
}

TEST_F(ArrivalLedgerTest, ReleasesRowsThatAreHeld) {
  Land(kA, 5);
  ledger_.ReleaseAll();  // nobody holds it
  EXPECT_TRUE(ledger_.Complete(0, {kA, 5}));
  ledger_.Hold(0, kA);
  ledger_.ReleaseAll();
  EXPECT_FALSE(ledger_.HeldByAnother(0, kB, 5));
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5}));
  EXPECT_EQ(ledger_.NumLanded(0), 0);
}

TEST_F(ArrivalLedgerTest, ReleasesARowThatIsBeingCopiedInto) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 0));
  ledger_.Hold(0, kA);
  ledger_.ReleaseAll();
  EXPECT_FALSE(ledger_.HeldByAnother(0, kB, 5));
  EXPECT_FALSE(ledger_.Own(0, {kB, 5}));
  ledger_.EndClaim(0, 0, true);
  EXPECT_TRUE(ledger_.Own(0, {kB, 5}));
}

// --- Attempts ----------------------------------------------------------------

TEST_F(ArrivalLedgerTest, AHigherAttemptEmptiesTheRow) {
  Land(kA, 5);
  EXPECT_FALSE(ledger_.NewerAttempt(0, {kA, 5, 2}).has_value());
  ASSERT_TRUE(ledger_.Own(0, {kA, 5, 2}));
  EXPECT_EQ(ledger_.AttemptOf(0, kA, 5), 2u);
  EXPECT_EQ(ledger_.AttemptOf(0, kA, 6), 0u);
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5}));
  EXPECT_EQ(ledger_.NumLanded(0), 0);
  for (int slice : {0, 1}) {
    ASSERT_TRUE(ledger_.ClaimSlice(0, slice));
    ledger_.EndClaim(0, slice, true);
  }
  EXPECT_TRUE(ledger_.Complete(0, {kA, 5, 2}));
  EXPECT_FALSE(ledger_.Complete(0, {kA, 5, 3}));
  EXPECT_FALSE(ledger_.Landed(0, {kA, 5}, 0));
  EXPECT_EQ(ledger_.NewerAttempt(0, {kA, 5, 1}), 2u);
  // Another round and another session begin anew.
  EXPECT_FALSE(ledger_.NewerAttempt(0, {kA, 6}).has_value());
  EXPECT_FALSE(ledger_.NewerAttempt(0, {kB, 5}).has_value());
}

TEST_F(ArrivalLedgerTest, AnAttemptThatWaitsForCopiesReplacesLowerOnes) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5, 1}));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 0));
  EXPECT_FALSE(ledger_.Own(0, {kA, 5, 2}));
  EXPECT_FALSE(ledger_.Own(0, {kA, 5, 3}));
  EXPECT_EQ(ledger_.NewerAttempt(0, {kA, 5, 1}), 3u);
  EXPECT_EQ(ledger_.NewerAttempt(0, {kA, 5, 2}), 3u);
  ledger_.EndClaim(0, 0, true);
  EXPECT_EQ(ledger_.AttemptOf(0, kA, 5), 1u);
  ASSERT_TRUE(ledger_.Own(0, {kA, 5, 3}));
  EXPECT_FALSE(ledger_.NewerAttempt(0, {kA, 5, 3}).has_value());
  EXPECT_TRUE(ledger_.ClaimSlice(0, 0));
}

TEST_F(ArrivalLedgerTest, KeepsTheChecksumsOfWhatHasLanded) {
  ASSERT_TRUE(ledger_.Own(0, {kA, 5}));
  ASSERT_TRUE(ledger_.ClaimSlice(0, 1));
  ledger_.EndClaim(0, 1, true);  // absent
  ASSERT_TRUE(ledger_.ClaimSlice(0, 0));
  ledger_.EndClaim(0, 0, true, 0x34333231);
  EXPECT_EQ(ledger_.SliceCrc32c(0, 0), 0x34333231u);
  EXPECT_EQ(ledger_.SliceCrc32c(0, 1), 0u);
  EXPECT_EQ(ledger_.RowCrc32c(0), Crc32cOfWords({0x34333231, 0}));
}

TEST(ArrivalLedgerWithoutSlicesTest, IsAlwaysComplete) {
  ArrivalLedger ledger(1, 0);
  EXPECT_TRUE(ledger.Complete(0, {kA, 5}));
  EXPECT_EQ(ledger.RowCrc32c(0), 0u);
}

TEST(ArrivalCountTest, OfTheRowsThatHaveLandedASlice) {
  ArrivalLedger ledger(3, 2);
  const auto land = [&](int row, uint64_t session, uint64_t round, int slice) {
    ASSERT_TRUE(ledger.Own(row, {session, round}));
    ASSERT_TRUE(ledger.ClaimSlice(row, slice));
    ledger.EndClaim(row, slice, true);
  };
  EXPECT_EQ(ledger.NumLanded(0), 0);
  land(0, 10, 4, 0);
  land(1, 11, 4, 0);
  land(1, 11, 4, 1);
  EXPECT_EQ(ledger.NumLanded(0), 2);
  EXPECT_EQ(ledger.NumLanded(1), 1);
  ledger.Erase(1, 11);
  EXPECT_EQ(ledger.NumLanded(0), 1);
  EXPECT_EQ(ledger.NumLanded(1), 0);
  land(1, 12, 4, 0);
  EXPECT_EQ(ledger.NumLanded(0), 2);
  // Erased while it lands: what it lands does not count, nor twice discounts.
  ASSERT_TRUE(ledger.ClaimSlice(1, 1));
  ledger.Erase(1, 12);
  EXPECT_EQ(ledger.NumLanded(0), 1);
  ledger.EndClaim(1, 1, true);
  EXPECT_EQ(ledger.NumLanded(0), 1);
  EXPECT_EQ(ledger.NumLanded(1), 0);
  // The next round begins at none, whoever is first; the old one's rows go
  // without a trace.
  land(2, 13, 5, 1);
  EXPECT_EQ(ledger.NumLanded(0), 0);
  EXPECT_EQ(ledger.NumLanded(1), 1);
  land(0, 10, 5, 1);
  EXPECT_EQ(ledger.NumLanded(0), 0);
  EXPECT_EQ(ledger.NumLanded(1), 2);
  ledger.Erase(2, 13);
  EXPECT_EQ(ledger.NumLanded(1), 1);
}

}  // namespace
}  // namespace agg
