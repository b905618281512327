// Checkpoints that are damaged, do not fit, or cannot be written, and what is
// restored besides arrays.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/server/round/recovery_fixture.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::filesystem::path> Folders(const std::string& path) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// It is waited for, since the one before would throw a round away: that is a
// person's word.
TEST_F(RecoveryTest, ADamagedPartIsNamedAndWaitedFor) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
    RunTo(&job, 2);
    job.cluster.AwaitCheckpoints(2);
  }
  const auto folders = Folders(folder_ + "/default");
  ASSERT_GE(folders.size(), 2u);
  const auto part = folders.back() / "part-00001-of-00002.npz";
  const auto length = std::filesystem::file_size(part);
  std::string bytes;
  {
    std::ifstream in(part, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const bool cut : {true, false}) {
    std::string damaged = bytes;
    if (cut) {
      damaged.pop_back();
    } else {
      damaged[length / 2] ^= 1;
    }
    std::ofstream(part, std::ios::binary) << damaged;
    LocalCluster again(WithCheckpoints(2, 1));
    for (int i = 0; i < 3; ++i) again.Advance(absl::Seconds(1));
    JobStatus status = again.coordinator()->Status();
    EXPECT_FALSE(status.seeded);
    EXPECT_THAT(status.message,
                AllOf(HasSubstr("the job waits"),
                      HasSubstr("part-00001-of-00002.npz is damaged"),
                      HasSubstr("aggctl restore " +
                                folders.front().filename().string())));
    EXPECT_EQ(Folders(folder_ + "/default"), folders);
    // Put back.
    std::ofstream(part, std::ios::binary) << bytes;
    for (int i = 0; i < 20; ++i) again.Advance(absl::Seconds(1));
    status = again.coordinator()->Status();
    EXPECT_TRUE(status.seeded) << status.message;
    EXPECT_EQ(status.version, 2u);
  }
}

// What is not taken stays: whoever said so may have been mistaken.
TEST_F(RecoveryTest, GoingOnFromACheckpointRemovesNone) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
    RunTo(&job, 2);
    job.cluster.AwaitCheckpoints(2);
  }
  const auto folders = Folders(folder_ + "/default");
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.checkpoint.keep = 1;
  // Twice, since the second life needs what the first one went on from.
  for (int life = 0; life < 2; ++life) {
    LocalCluster again(options);
    for (int i = 0; i < 3; ++i) again.Advance(absl::Seconds(1));
    const JobStatus status = again.coordinator()->Status();
    ASSERT_TRUE(status.seeded) << status.message;
    EXPECT_EQ(status.version, 2u);
    EXPECT_EQ(Folders(folder_ + "/default"), folders);
  }
}

TEST_F(RecoveryTest, AJobOfAnotherOptimizerIsRefusedByName) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
  }
  ClusterOptions options = WithCheckpoints(2, 1);
  SetOptimizer(OptimizerOptions(), &options);
  LocalCluster cluster(options);
  for (int i = 0; i < 3; ++i) cluster.Advance(absl::Seconds(1));
  const JobStatus status = cluster.coordinator()->Status();
  EXPECT_FALSE(status.seeded);
  EXPECT_THAT(status.message, HasSubstr("optimizer is \"adam\""));
}

TEST_F(RecoveryTest, RestoreNoneWaitsForASeed) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
  }
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.checkpoint.restore = false;
  LocalCluster cluster(options);
  EXPECT_EQ(cluster.coordinator()->Status().phase, JobPhase::kUnseeded);
}

TEST_F(RecoveryTest, AFullDiskFailsTheCheckpointAndNoRound) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  job.cluster.AwaitCheckpoints(1);
  // What stands in the way of a folder cannot be written into.
  std::filesystem::remove_all(folder_);
  std::ofstream(folder_) << "no folder";
  // One more alone: the next may fail since a shard still writes this one.
  RunTo(&job, 2);
  job.cluster.AwaitCheckpoints(2);
  const CheckpointStatus status =
      job.cluster.coordinator()->Status().checkpoint;
  EXPECT_GE(status.num_failed, 1u);
  EXPECT_THAT(status.last_error, HasSubstr(folder_));
  RunTo(&job, 5);
}

TEST_F(RecoveryTest, AFinishedJobStaysFinishedAndCanBePulled) {
  ClusterOptions options = WithCheckpoints(2, 0);
  options.coordinator.max_rounds = 3;
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 3);
  ASSERT_TRUE(job.cluster.coordinator()->finished());
  const Tensors last = *job.cluster.Pull(3);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartAll();
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished) << status.message;
  EXPECT_TRUE(SameBits(*job.cluster.Pull(3), last));
  // A higher limit lets it go on.
  options.coordinator.max_rounds = 5;
  LocalCluster longer(options);
  EXPECT_EQ(longer.coordinator()->Status().phase, JobPhase::kOpen);
}

TEST_F(RecoveryTest, ARuleThatWasSetHoldsAfterwards) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  RuleChange change;
  change.rule = "mean";
  change.learning_rate = 0.125;
  ASSERT_TRUE(job.cluster.coordinator()->SetRule(change, nullptr).ok());
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(1);
  RunTo(&job, 4);
  job.cluster.AwaitCheckpoints(
      job.cluster.coordinator()->Status().checkpoint.num_sealed);
  job.cluster.RestartAll();
  const JobStatus status = job.cluster.coordinator()->Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.combination.rule, "mean");
}

TEST_F(RecoveryTest, OneIsTakenWhenAnOperatorAsks) {
  RunningJob job(WithCheckpoints(2, 0), SmallManifest(), 2);
  RunTo(&job, 2);
  Reply<absl::StatusOr<TakenCheckpoint>> reply;
  job.cluster.coordinator()->TakeCheckpoint(reply.callback());
  job.cluster.AwaitCheckpoints(1);
  ASSERT_TRUE(reply.called());
  ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
  EXPECT_EQ(reply.Get()->version, 2u);
  EXPECT_GT(reply.Get()->num_bytes, 3 * 4 * 347);
}

// Whatever the clock says: another coordinator's clock was ahead by a year.
TEST_F(RecoveryTest, AClockThatJumpsBackHoldsNothingUp) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.clock()->Advance(-absl::Hours(9000));
  job.cluster.RestartCoordinator();
  for (int i = 0; i < 3; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_TRUE(status.seeded) << status.message;
}

}  // namespace
}  // namespace agg
