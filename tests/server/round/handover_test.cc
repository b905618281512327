// Shards that are stopped in good order and started again (P35): the job goes
// on from the version that it had, and ends with the bits of the undisturbed
// one.
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "server/base/job_phase.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;

class HandoverTest : public testing::Test {
 protected:
  HandoverTest()
      : folder_(absl::StrCat(
            testing::TempDir(), "/handover_",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~HandoverTest() override { std::filesystem::remove_all(folder_); }

  static ClusterOptions Options(bool replicated = false) {
    ClusterOptions options = MakeClusterOptions(2, 2, "adacons");
    OptimizerOptions adam;
    adam.kind = OptimizerKind::kAdam;
    SetOptimizer(adam, &options);
    options.coordinator.replicated = replicated;
    options.shard.replicated = replicated;
    return options;
  }
  // No checkpoint falls due by itself.
  ClusterOptions WithCheckpoints(bool replicated = false) const {
    ClusterOptions options = Options(replicated);
    options.checkpoint_path = folder_;
    options.coordinator.checkpoint.enabled = true;
    return options;
  }
  static Manifest SmallManifest() {
    return MakeManifest({{7}, {}, {300}, {40}});
  }
  static JobStatus StatusOf(RunningJob* job) { return job->cluster.Status(); }
  static void RunTo(RunningJob* job, uint64_t last) {
    for (uint64_t round = StatusOf(job).version; round < last; ++round) {
      job->RunRound(round);
      ASSERT_EQ(StatusOf(job).version, round + 1);
    }
  }
  // What both workers hear of the round; shard 1 is stopped while it is in
  // execution.
  static std::vector<OutcomeReply> StopIn(uint64_t round, RunningJob* job) {
    FaultyPeer* const peer = job->cluster.peer(1);
    peer->BeforePhase([peer](const Phase& phase) {
      if (phase.kind == PhaseKind::kUpdate) peer->ReportDraining();
    });
    std::vector<OutcomeReply> replies = ContributeAll(round, job);
    job->cluster.Settle();
    peer->BeforePhase(nullptr);
    return replies;
  }
  static std::vector<OutcomeReply> ContributeAll(uint64_t round,
                                                 RunningJob* job) {
    std::vector<OutcomeReply> replies;
    for (LocalWorker& worker : job->workers) {
      const uint64_t seed =
          1000 * (round + 1) + static_cast<uint64_t>(worker.rank());
      auto reply = worker.Contribute(round, RandomTensors(job->manifest, seed));
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (reply.ok()) replies.push_back(*std::move(reply));
    }
    return replies;
  }
  static void ExpectStopped(RunningJob* job) {
    const JobStatus status = StatusOf(job);
    EXPECT_EQ(status.phase, JobPhase::kShardLost);
    EXPECT_THAT(status.message, HasSubstr("is shutting down"));
    for (int k = 0; k < 2; ++k) {
      EXPECT_FALSE(job->cluster.engine(k)->Status().attached);
    }
  }
  // The workers are in with what they had, and the job ends as it would have.
  static void ExpectGoesOn(uint64_t version, uint64_t made, RunningJob* job) {
    const JobStatus status = StatusOf(job);
    EXPECT_EQ(status.version, version);
    EXPECT_EQ(status.rewinds, 0u);
    for (LocalWorker& worker : job->workers) {
      ASSERT_EQ(worker.Resume(version, made), absl::OkStatus());
      EXPECT_FALSE(worker.joined().rewound);
    }
    RunTo(job, 6);
    const absl::StatusOr<Tensors> got = job->cluster.Pull(6);
    ASSERT_TRUE(got.ok()) << got.status();
    RunningJob undisturbed(Options(), SmallManifest(), 2);
    RunTo(&undisturbed, 6);
    const Tensors expected = *undisturbed.cluster.Pull(6);
    ASSERT_EQ(got->size(), expected.size());
    for (size_t t = 0; t < expected.size(); ++t) {
      ASSERT_EQ((*got)[t].size(), expected[t].size());
      EXPECT_EQ(std::memcmp((*got)[t].data(), expected[t].data(),
                            4 * expected[t].size()),
                0);
    }
  }

  const std::string folder_;
};

TEST_F(HandoverTest, ACheckpointOfJustThisVersionComesFirst) {
  RunningJob job(WithCheckpoints(), SmallManifest(), 2);
  RunTo(&job, 3);
  const uint64_t made = StatusOf(&job).epoch;
  const std::vector<OutcomeReply> replies = StopIn(3, &job);
  for (const OutcomeReply& reply : replies) {
    ASSERT_TRUE(reply.called());
    EXPECT_EQ(reply.Get()->version, 4u) << "it was in execution";
  }
  job.cluster.AwaitCheckpoints(1);
  job.cluster.Settle();
  EXPECT_EQ(StatusOf(&job).checkpoint.num_sealed, 1u);
  EXPECT_EQ(StatusOf(&job).checkpoint.version, 4u);
  ExpectStopped(&job);
  job.cluster.RestartShard(1);
  ExpectGoesOn(4, made, &job);
}

TEST_F(HandoverTest, RoundsStandStillMeanwhile) {
  RunningJob job(WithCheckpoints(), SmallManifest(), 2);
  RunTo(&job, 3);
  const uint64_t made = StatusOf(&job).epoch;
  std::vector<OutcomeReply> late;
  job.cluster.peer(1)->BeforePhase([&](const Phase& phase) {
    if (phase.kind == PhaseKind::kCapture) late = ContributeAll(3, &job);
  });
  job.cluster.peer(1)->ReportDraining();
  job.cluster.AwaitCheckpoints(1);
  job.cluster.Settle();
  job.cluster.peer(1)->BeforePhase(nullptr);
  ASSERT_EQ(late.size(), 2u);
  for (const OutcomeReply& reply : late) {
    ASSERT_TRUE(reply.called());
    EXPECT_TRUE(absl::IsUnavailable(reply.Get().status()));
  }
  ExpectStopped(&job);
  job.cluster.RestartShard(1);
  ExpectGoesOn(3, made, &job);
}

TEST_F(HandoverTest, SecondCopiesNeedNoCheckpoint) {
  RunningJob job(Options(/*replicated=*/true), SmallManifest(), 2);
  RunTo(&job, 3);
  const uint64_t made = StatusOf(&job).epoch;
  StopIn(3, &job);
  ExpectStopped(&job);
  job.cluster.RestartShard(1);
  ExpectGoesOn(4, made, &job);
}

// All at once, the coordinator first: its calls end, the checkpoint is taken.
TEST_F(HandoverTest, AJobThatIsStoppedAsOneLosesNothing) {
  for (const bool replicated : {false, true}) {
    SCOPED_TRACE(replicated);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    RunningJob job(WithCheckpoints(replicated), SmallManifest(), 2);
    RunTo(&job, 3);
    job.cluster.coordinator()->Drain(absl::Now());
    job.cluster.peer(1)->ReportDraining();
    job.cluster.AwaitCheckpoints(1);
    job.cluster.Settle();
    EXPECT_FALSE(job.cluster.engine(1)->Status().attached);
    job.cluster.RestartAll();
    EXPECT_EQ(StatusOf(&job).version, 3u);
    EXPECT_EQ(StatusOf(&job).checkpoint.restored_version, 3u);
  }
}

TEST_F(HandoverTest, AFailedCheckpointDoesNotHoldItUp) {
  RunningJob job(WithCheckpoints(), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(0)->FailNext(PhaseKind::kCapture,
                                absl::ResourceExhaustedError("disk full"));
  job.cluster.peer(1)->ReportDraining();
  job.cluster.Settle();
  EXPECT_EQ(StatusOf(&job).checkpoint.num_failed, 1u);
  ExpectStopped(&job);
}

// The limit is the checkpoint's, and not that of the round before it.
TEST_F(HandoverTest, ALongRoundLeavesTimeForTheCheckpoint) {
  ClusterOptions options = WithCheckpoints();
  options.coordinator.lease = absl::Hours(1);
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 3);
  job.cluster.peer(1)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kUpdate) return;
    job.cluster.peer(1)->ReportDraining();
    job.cluster.clock()->Advance(absl::Minutes(1));
  });
  const std::vector<OutcomeReply> replies = ContributeAll(3, &job);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.Settle();
  EXPECT_EQ(StatusOf(&job).checkpoint.num_sealed, 1u);
  EXPECT_EQ(StatusOf(&job).checkpoint.version, 4u);
  ExpectStopped(&job);
}

TEST_F(HandoverTest, WithNeitherTheEpochEndsAtOnce) {
  RunningJob job(Options(), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(1)->ReportDraining();
  job.cluster.Settle();
  ExpectStopped(&job);
  job.cluster.RestartShard(1);
  EXPECT_FALSE(StatusOf(&job).seeded);
}

TEST_F(HandoverTest, AFinishedJobLetsOneGoAlone) {
  ClusterOptions options = Options();
  options.coordinator.max_rounds = 2;
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(1)->ReportDraining();
  job.cluster.Settle();
  EXPECT_EQ(StatusOf(&job).phase, JobPhase::kFinished);
  EXPECT_TRUE(job.cluster.engine(0)->Status().attached);
  EXPECT_FALSE(job.cluster.engine(1)->Status().attached);
}

}  // namespace
}  // namespace agg
