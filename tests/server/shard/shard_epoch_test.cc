#include "server/shard/shard_epoch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;

TEST(ShardEpochTest, WaitsForItsCoordinatorFirst) {
  const ShardEpoch epoch(3);
  EXPECT_FALSE(epoch.on());
  EXPECT_EQ(epoch.Check(0),
            absl::UnavailableError("shard 3 waits for its coordinator"));
}

TEST(ShardEpochTest, ANewerEpochReplacesTheOneThatIsOn) {
  ShardEpoch epoch(0);
  EXPECT_TRUE(*epoch.Begin(5, nullptr));
  EXPECT_FALSE(*epoch.Begin(5, nullptr));  // a repeat
  EXPECT_TRUE(*epoch.Begin(8, nullptr));
  EXPECT_EQ(epoch.Check(8), absl::OkStatus());
  const absl::Status stale = epoch.Check(5);
  EXPECT_TRUE(absl::IsAborted(stale));
  EXPECT_THAT(stale.message(), HasSubstr("stale epoch 5; current epoch 8"));
  EXPECT_TRUE(absl::IsAborted(epoch.Begin(5, nullptr).status()));
  EXPECT_TRUE(absl::IsAborted(epoch.Begin(0, nullptr).status()));
  EXPECT_EQ(epoch.number(), 8u);
}

TEST(ShardEpochTest, TheFirstReasonOfTheEndStays) {
  ShardEpoch epoch(0);
  ASSERT_TRUE(epoch.Begin(5, nullptr).ok());
  EXPECT_FALSE(epoch.End(4, absl::UnavailableError("of another epoch")));
  EXPECT_TRUE(epoch.on());
  EXPECT_TRUE(epoch.End(5, absl::UnavailableError("first")));
  EXPECT_TRUE(epoch.End(0, absl::UnavailableError("second")));
  EXPECT_EQ(epoch.Check(5), absl::UnavailableError("first"));
  epoch.Break(absl::UnavailableError("third"));
  EXPECT_EQ(epoch.end(), absl::UnavailableError("third"));
}

// P20: what was recovered in it would be taken for a repeat.
TEST(ShardEpochTest, AnEpochThatIsOverDoesNotBeginAgain) {
  ShardEpoch epoch(0);
  ASSERT_TRUE(epoch.Begin(5, nullptr).ok());
  epoch.End(0, absl::UnavailableError("lost"));
  EXPECT_TRUE(absl::IsAborted(epoch.Begin(5, nullptr).status()));
  EXPECT_FALSE(epoch.on());
  EXPECT_EQ(epoch.Check(5), absl::UnavailableError("lost"));
  EXPECT_TRUE(*epoch.Begin(6, nullptr));
  EXPECT_TRUE(epoch.on());
}

TEST(ShardEpochTest, NoEpochBeginsOnALostDevice) {
  ShardEpoch epoch(0);
  absl::Status reported;
  ASSERT_TRUE(
      epoch.Begin(5, [&](absl::Status status) { reported = status; }).ok());
  const absl::Status reason = absl::UnavailableError("the card is gone");
  epoch.LoseDevice(reason)(reason);
  EXPECT_EQ(reported, reason);
  EXPECT_EQ(epoch.Check(5), reason);
  EXPECT_EQ(epoch.Begin(6, nullptr).status(), reason);
  EXPECT_EQ(epoch.number(), 5u);
}

}  // namespace
}  // namespace agg
