#include "gtest/gtest.h"
#include "worker_client/row_ledger.h"

namespace agg {
namespace {

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
