#include "server/coordinator/checkpoint_schedule.h"

#include <optional>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

CheckpointOptions Options(int seconds, uint64_t rounds) {
  CheckpointOptions options;
  options.enabled = true;
  options.every = absl::Seconds(seconds);
  options.every_rounds = rounds;
  return options;
}

TEST(CheckpointScheduleTest, NothingIsDueWithoutAPath) {
  CheckpointOptions options = Options(1, 1);
  options.enabled = false;
  CheckpointSchedule schedule(options);
  schedule.Begin({7, 0}, std::nullopt, At(0));
  EXPECT_FALSE(schedule.Due({7, 5}, true, At(100)));
  EXPECT_EQ(schedule.NextDue({7, 5}, true), absl::InfiniteFuture());
  EXPECT_FALSE(schedule.Status(At(0)).configured);
}

TEST(CheckpointScheduleTest, DueAfterSoManySeconds) {
  CheckpointSchedule schedule(Options(10, 0));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  EXPECT_FALSE(schedule.Due({7, 3}, false, At(9)));
  EXPECT_TRUE(schedule.Due({7, 3}, false, At(10)));
  EXPECT_FALSE(schedule.Due({7, 0}, false, At(10))) << "no other version";
  EXPECT_EQ(schedule.NextDue({7, 3}, false), At(10));
  EXPECT_EQ(schedule.NextDue({7, 0}, false), absl::InfiniteFuture());
  schedule.Start({7, 3}, At(11));
  schedule.End(TakenCheckpoint{3, 7, 100}, At(15)).Run();
  EXPECT_FALSE(schedule.Due({7, 4}, false, At(20)));
  EXPECT_TRUE(schedule.Due({7, 4}, false, At(21)));
  const CheckpointStatus status = schedule.Status(At(18));
  EXPECT_EQ(status.version, 3u);
  EXPECT_EQ(status.made, 7u);
  EXPECT_EQ(status.age, absl::Seconds(3));
  EXPECT_EQ(status.num_sealed, 1u);
}

TEST(CheckpointScheduleTest, DueAfterSoManyRounds) {
  CheckpointSchedule schedule(Options(0, 5));
  schedule.Begin({7, 2}, std::nullopt, At(0));
  EXPECT_FALSE(schedule.Due({7, 6}, false, At(1000)));
  EXPECT_TRUE(schedule.Due({7, 7}, false, At(0)));
  EXPECT_EQ(schedule.NextDue({7, 3}, false), absl::InfiniteFuture());
  // Another epoch makes the versions now: they still count on.
  EXPECT_FALSE(schedule.Due({9, 6}, false, At(0)));
  EXPECT_TRUE(schedule.Due({9, 7}, false, At(0)));
}

TEST(CheckpointScheduleTest, AFailureIsSaidAndTriedAgainWhenTheNextIsDue) {
  CheckpointSchedule schedule(Options(10, 0));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  schedule.Start({7, 3}, At(10));
  schedule.End(absl::ResourceExhaustedError("disk full"), At(11)).Run();
  CheckpointStatus status = schedule.Status(At(11));
  EXPECT_EQ(status.last_error, "disk full");
  EXPECT_EQ(status.num_failed, 1u);
  EXPECT_EQ(status.made, 0u);
  EXPECT_FALSE(schedule.Due({7, 4}, false, At(19)));
  EXPECT_TRUE(schedule.Due({7, 4}, false, At(20)));
  schedule.Start({7, 4}, At(20));
  schedule.End(TakenCheckpoint{4, 7, 1}, At(21)).Run();
  EXPECT_EQ(schedule.Status(At(21)).last_error, "");
}

TEST(CheckpointScheduleTest, WhatFallsDueMeanwhileIsSkippedAndCounted) {
  CheckpointSchedule schedule(Options(0, 1));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  schedule.Start({7, 1}, At(0));
  EXPECT_TRUE(schedule.Due({7, 2}, false, At(0)));
  EXPECT_TRUE(schedule.busy());
  schedule.Skip({7, 2}, At(0));
  EXPECT_FALSE(schedule.Due({7, 2}, false, At(0)));
  EXPECT_EQ(schedule.Status(At(0)).num_skipped, 1u);
  schedule.End(TakenCheckpoint{1, 7, 1}, At(0)).Run();
  EXPECT_EQ(schedule.Status(At(0)).version, 1u);
}

TEST(CheckpointScheduleTest, AFinishedJobTakesALastOneAndSkipsItNever) {
  CheckpointSchedule schedule(Options(1000, 0));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  schedule.Start({7, 1}, At(0));
  EXPECT_FALSE(schedule.Due({7, 9}, true, At(1))) << "one is under way";
  schedule.End(TakenCheckpoint{1, 7, 1}, At(2)).Run();
  EXPECT_TRUE(schedule.Due({7, 9}, true, At(2)));
  EXPECT_EQ(schedule.NextDue({7, 9}, true), absl::InfinitePast());
  schedule.Start({7, 9}, At(2));
  schedule.End(absl::UnavailableError("gone"), At(2)).Run();
  EXPECT_FALSE(schedule.Due({7, 9}, true, At(3))) << "a loop would not help";
}

// It finishes at a version that was skipped: its last worker leaves.
TEST(CheckpointScheduleTest, AFinishedJobTakesTheVersionThatItSkipped) {
  CheckpointSchedule schedule(Options(0, 1));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  schedule.Start({7, 1}, At(0));
  schedule.Skip({7, 2}, At(0));
  EXPECT_FALSE(schedule.Due({7, 2}, true, At(1))) << "one is under way";
  schedule.End(TakenCheckpoint{1, 7, 1}, At(2)).Run();
  EXPECT_FALSE(schedule.Due({7, 2}, false, At(2)));
  EXPECT_EQ(schedule.NextDue({7, 2}, false), absl::InfiniteFuture());
  EXPECT_TRUE(schedule.Due({7, 2}, true, At(2)));
  EXPECT_EQ(schedule.NextDue({7, 2}, true), absl::InfinitePast());
  schedule.Start({7, 2}, At(2));
  schedule.End(TakenCheckpoint{2, 7, 1}, At(3)).Run();
  EXPECT_FALSE(schedule.Due({7, 2}, true, At(3)));
  // What was skipped before a rewind is of a past that was given up.
  schedule.Skip({7, 3}, At(4));
  schedule.Begin({9, 2}, VersionId{7, 2}, At(5));
  EXPECT_FALSE(schedule.Due({9, 2}, true, At(5)));
}

TEST(CheckpointScheduleTest, WhoAsksGetsTheNextOneThatBegins) {
  CheckpointSchedule schedule(Options(1000, 0));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  std::optional<absl::StatusOr<TakenCheckpoint>> first;
  std::optional<absl::StatusOr<TakenCheckpoint>> second;
  schedule.Request([&](auto result) { first = result; });
  EXPECT_TRUE(schedule.Due({7, 0}, false, At(1))) << "even of the same version";
  schedule.Start({7, 0}, At(1));
  schedule.Request([&](auto result) { second = result; });
  EXPECT_FALSE(schedule.Due({7, 1}, false, At(1)));
  schedule.End(TakenCheckpoint{0, 7, 12}, At(2)).Run();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ((*first)->num_bytes, 12);
  EXPECT_FALSE(second.has_value());
  EXPECT_TRUE(schedule.Due({7, 1}, false, At(2)));
  schedule.Refuse(absl::UnavailableError("draining")).Run();
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(absl::IsUnavailable(second->status()));
  EXPECT_FALSE(schedule.Due({7, 1}, false, At(2)));
}

TEST(CheckpointScheduleTest, NobodyWaitsForOneThatIsGivenUp) {
  CheckpointSchedule schedule(Options(1000, 0));
  schedule.Begin({7, 0}, std::nullopt, At(0));
  std::optional<absl::StatusOr<TakenCheckpoint>> taken;
  schedule.Request([&](auto result) { taken = result; });
  schedule.Start({7, 0}, At(1));
  schedule.Refuse(absl::UnavailableError("stopping")).Run();
  ASSERT_TRUE(taken.has_value());
  EXPECT_TRUE(absl::IsUnavailable(taken->status()));
}

TEST(CheckpointScheduleTest, SoManyMayWaitAndNoMore) {
  CheckpointSchedule schedule(Options(1000, 0));
  for (size_t i = 0; i < CheckpointSchedule::kMaxWaiting; ++i) {
    ASSERT_TRUE(schedule.has_room());
    schedule.Request(nullptr);
  }
  EXPECT_FALSE(schedule.has_room());
}

TEST(CheckpointScheduleTest, SaysWhatTheJobHasGoneOnFrom) {
  CheckpointSchedule schedule(Options(10, 0));
  EXPECT_FALSE(schedule.began());
  // A rewind in epoch 9, to what epoch 7 had made.
  schedule.Begin({9, 40}, VersionId{7, 40}, At(0));
  EXPECT_TRUE(schedule.began());
  const CheckpointStatus status = schedule.Status(At(3));
  EXPECT_EQ(status.restored_version, 40u);
  EXPECT_EQ(status.restored_made, 7u);
  // It is the newest one there is, and not one of the job's present version.
  EXPECT_EQ(status.version, 40u);
  EXPECT_EQ(status.made, 7u);
  EXPECT_EQ(status.age, absl::Seconds(3));
  EXPECT_FALSE(schedule.Has({9, 40}));
}

using Step = Handover::Step;
using testing::ElementsAre;

constexpr VersionId kId = {7, 4};

class HandoverTest : public testing::Test {
 protected:
  static CheckpointOptions Enabled() {
    CheckpointOptions options;
    options.enabled = true;
    return options;
  }
  HandoverTest() {
    checkpoints_.Begin({7, 0}, std::nullopt, At(0));
    handover_.Add(9, 1);
  }
  Step NextAt(int seconds) const {
    return handover_.Next(checkpoints_, kId, At(seconds));
  }
  void Request() {
    handover_.NoteRequest();
    checkpoints_.Request(nullptr);
  }

  CheckpointSchedule checkpoints_{Enabled()};
  Handover handover_;
};

TEST_F(HandoverTest, WaitsForACheckpointOfJustThisVersion) {
  EXPECT_TRUE(handover_.on(9));
  EXPECT_EQ(NextAt(100), Step::kTakeCheckpoint);
  Request();
  EXPECT_EQ(NextAt(100), Step::kWait);
  checkpoints_.Start(kId, At(101));
  EXPECT_EQ(NextAt(101), Step::kWait);
  checkpoints_.End(TakenCheckpoint{4, 7, 100}, At(102)).Run();
  EXPECT_EQ(NextAt(102), Step::kLetGo);
}

TEST_F(HandoverTest, OneThatIsUnderWayMayBeTheOne) {
  checkpoints_.Start(kId, At(99));
  EXPECT_EQ(NextAt(100), Step::kWait);
  checkpoints_.End(TakenCheckpoint{4, 7, 100}, At(102)).Run();
  EXPECT_EQ(NextAt(102), Step::kLetGo);
}

TEST_F(HandoverTest, OneOfAnOlderVersionIsNot) {
  checkpoints_.Start({7, 3}, At(99));
  checkpoints_.End(TakenCheckpoint{3, 7, 100}, At(102)).Run();
  EXPECT_EQ(NextAt(102), Step::kTakeCheckpoint);
}

TEST_F(HandoverTest, AFailedOneIsNotTriedAgain) {
  Request();
  checkpoints_.Start(kId, At(101));
  checkpoints_.End(absl::ResourceExhaustedError("disk full"), At(102)).Run();
  EXPECT_EQ(NextAt(102), Step::kLetGo);
}

TEST_F(HandoverTest, TheWaitEnds) {
  Request();
  checkpoints_.Start(kId, At(101));
  EXPECT_EQ(handover_.deadline(), absl::InfiniteFuture());
  handover_.StandStill(At(100));
  handover_.StandStill(At(101));
  EXPECT_EQ(handover_.deadline(), At(130));
  EXPECT_EQ(NextAt(129), Step::kWait);
  EXPECT_EQ(NextAt(130), Step::kLetGo);
}

TEST_F(HandoverTest, OneEndServesAllThatWait) {
  handover_.StandStill(At(100));
  handover_.Add(9, 0);
  handover_.Add(9, 1);
  handover_.Add(8, 2);  // of a former epoch
  EXPECT_EQ(handover_.deadline(), At(130)) << "the first one's";
  EXPECT_THAT(handover_.Take(), ElementsAre(0, 1));
  EXPECT_FALSE(handover_.on(9));
  EXPECT_THAT(handover_.Take(), ElementsAre());
}

TEST_F(HandoverTest, ANewerEpochBeginsAnew) {
  Request();
  handover_.StandStill(At(100));
  handover_.Add(10, 2);
  EXPECT_FALSE(handover_.on(9));
  EXPECT_TRUE(handover_.on(10));
  EXPECT_EQ(handover_.deadline(), absl::InfiniteFuture());
  EXPECT_THAT(handover_.Take(), ElementsAre(2));
}

}  // namespace
}  // namespace agg
