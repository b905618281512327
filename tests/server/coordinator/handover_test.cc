#include <optional>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/checkpoint_schedule.h"

namespace agg {
namespace {

using Step = Handover::Step;
using testing::ElementsAre;

constexpr VersionId kId = {7, 4};

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

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
