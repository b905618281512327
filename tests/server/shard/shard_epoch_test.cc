#include "server/shard/shard_epoch.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
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

RecordText Record(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

TEST(HeldCopyTest, StepsToWhatItWasPreparedFor) {
  HeldCopy copy(2);
  EXPECT_FALSE(copy.held());
  EXPECT_EQ(copy.Describe(), "part 2 is void");
  copy.Hold({7, 5}, Record("of 5"));
  EXPECT_TRUE(copy.At({7, 5}));
  EXPECT_EQ(copy.Describe(), "part 2 is at version 5 (made by epoch 7)");
  copy.BeginPrepare(8);
  EXPECT_TRUE(copy.prepared());
  EXPECT_FALSE(copy.whole());
  EXPECT_TRUE(absl::IsFailedPrecondition(copy.CheckStep({8, 6})));
  copy.EndPrepare(Record("of 6"));
  EXPECT_EQ(*copy.record(), "of 5");
  EXPECT_EQ(copy.CheckStep({8, 6}), absl::OkStatus());
  EXPECT_THAT(copy.CheckStep({7, 6}).message(),
              HasSubstr("a step to version 6 (made by epoch 7) is not possible:"
                        " part 2 is at version 5 (made by epoch 7), prepared "
                        "by epoch 8"));
  EXPECT_FALSE(copy.CheckStep({8, 7}).ok());
  copy.Step();
  EXPECT_TRUE(copy.At({8, 6}));
  EXPECT_FALSE(copy.prepared());
  EXPECT_EQ(*copy.record(), "of 6");
  EXPECT_FALSE(copy.CheckStep({8, 7}).ok());
}

TEST(HeldCopyTest, DropsWhatWasPrepared) {
  HeldCopy copy(0);
  copy.Hold({7, 5}, Record("of 5"));
  copy.BeginPrepare(8);
  copy.EndPrepare(Record("of 6"));
  copy.Drop();
  EXPECT_TRUE(copy.At({7, 5}));
  EXPECT_FALSE(copy.prepared());
  EXPECT_EQ(*copy.record(), "of 5");
  copy.BeginPrepare(9);
  copy.EndPrepare(nullptr);
  copy.Step();
  EXPECT_EQ(copy.record(), nullptr);
}

TEST(HeldCopyTest, AVoidOneRemembersWhereItWas) {
  HeldCopy copy(0);
  copy.Hold({7, 5}, Record("of 5"));
  copy.BeginPrepare(8);
  copy.Void();
  EXPECT_FALSE(copy.At({7, 5}));
  EXPECT_EQ(copy.id().version, 5u);
  EXPECT_EQ(copy.record(), nullptr);
  EXPECT_FALSE(copy.prepared());
  copy.Hold({9, 3}, nullptr);
  EXPECT_TRUE(copy.At({9, 3}));
}

}  // namespace
}  // namespace agg
