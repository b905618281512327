// Jobs whose parts have a second copy: a killed shard changes nothing.
#include "tests/server/round/recovery_fixture.h"

namespace agg {
namespace {

class BuddyTest : public RecoveryTest {
 protected:
  ClusterOptions Replicated(int num_shards) const {
    ClusterOptions options = Options(num_shards);
    options.coordinator.replicated = true;
    options.shard.replicated = true;
    return options;
  }
};

TEST_F(BuddyTest, RoundsHaveTheBitsOfAJobWithoutCopies) {
  const Tensors expected = Undisturbed(2, 4);
  for (const int num_shards : {2, 3, 4}) {
    RunningJob job(Replicated(num_shards), SmallManifest(), 2);
    EXPECT_TRUE(job.cluster.coordinator()->Status().replicated);
    ExpectEndsAs(&job, 4, expected);
  }
}

TEST_F(BuddyTest, AKilledShardChangesNothing) {
  const Tensors expected = Undisturbed(3, 8);
  RunningJob job(Replicated(3), SmallManifest(), 2);
  uint64_t version = 1;
  for (const int shard : {1, 2, 1, 2}) {
    RunTo(&job, version);
    const uint64_t made = job.cluster.coordinator()->Status().epoch;
    job.cluster.RestartShard(shard);
    const JobStatus status = job.cluster.coordinator()->Status();
    ASSERT_EQ(status.version, version) << status.message;
    EXPECT_EQ(status.rewinds, 0u);
    ResumeAll(&job, version, made);
    EXPECT_FALSE(job.workers[0].joined().rewound);
    ++version;
  }
  ExpectEndsAs(&job, 8, expected);
}

TEST_F(BuddyTest, AKilledCoordinatorChangesNothing) {
  const Tensors expected = Undisturbed(2, 6);
  for (const int num_shards : {2, 4}) {
    RunningJob job(Replicated(num_shards), SmallManifest(), 2);
    for (const uint64_t version : {1, 3}) {
      RunTo(&job, version);
      const uint64_t made = job.cluster.coordinator()->Status().epoch;
      const uint64_t session = job.workers[0].session();
      job.cluster.RestartCoordinator();
      const JobStatus status = job.cluster.coordinator()->Status();
      ASSERT_EQ(status.version, version) << status.message;
      EXPECT_EQ(status.workers.size(), 2u);
      ResumeAll(&job, version, made);
      EXPECT_EQ(job.workers[0].session(), session);
      EXPECT_FALSE(job.workers[0].joined().rewound);
    }
    ExpectEndsAs(&job, 6, expected);
  }
}

// What the rule remembers goes on, though it is not the configured one.
TEST_F(BuddyTest, ARuleThatWasSetKeepsItsMemory) {
  RuleChange change;
  change.rule = "adacons";
  change.adacons_beta = 0.5;
  const auto run = [&](bool kill) {
    ClusterOptions options = Replicated(2);
    options.coordinator.combine.rule.rule = FindRule("mean");
    RunningJob job(options, SmallManifest(), 2);
    EXPECT_TRUE(job.cluster.coordinator()->SetRule(change, nullptr).ok());
    RunTo(&job, 3);
    if (kill) {
      const uint64_t made = job.cluster.coordinator()->Status().epoch;
      job.cluster.RestartCoordinator();
      ResumeAll(&job, 3, made);
      EXPECT_EQ(job.cluster.coordinator()->Status().combination.rule,
                "adacons");
    }
    RunTo(&job, 6);
    return *job.cluster.Pull(6);
  };
  EXPECT_TRUE(SameBits(run(true), run(false)));
}

// Shards that hold nothing forget it with all else; they are sent it again.
TEST_F(BuddyTest, ARuleThatWasSetBeforeTheSeedOutlivesTheCoordinator) {
  LocalCluster cluster(Replicated(2));
  RuleChange change;
  change.rule = "mean";
  ASSERT_TRUE(cluster.coordinator()->SetRule(change, nullptr).ok());
  cluster.Settle();
  cluster.RestartShard(1);
  std::vector<LocalWorker> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back(&cluster, rank, SmallManifest());
    ASSERT_EQ(workers.back().Join(), absl::OkStatus());
  }
  ASSERT_EQ(workers[0].Seed(RandomTensors(SmallManifest(), 1)),
            absl::OkStatus());
  cluster.RestartCoordinator();
  const JobStatus status = cluster.coordinator()->Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.combination.rule, "mean");
}

// A worker that slept through the end of its lease and a new coordinator.
TEST_F(BuddyTest, ASessionThatIsOverStaysSoForANewCoordinator) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  ASSERT_EQ(job.workers[0].Leave(), absl::OkStatus());
  const uint64_t session = job.workers[0].session();
  job.cluster.RestartCoordinator();
  ASSERT_EQ(job.workers[0].Resume(2, 0), absl::OkStatus());
  EXPECT_NE(job.workers[0].session(), session);
}

TEST_F(BuddyTest, TwoNeighboursAtOnceAreTooMany) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.RestartAll();
  EXPECT_FALSE(job.cluster.coordinator()->Status().seeded);
}

TEST_F(BuddyTest, WithCheckpointsEvenThatRewindsExactly) {
  const Tensors expected = Undisturbed(2, 6);
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.replicated = true;
  options.shard.replicated = true;
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartAll();
  ASSERT_TRUE(job.cluster.coordinator()->Status().seeded);
  for (LocalWorker& worker : job.workers) {
    ASSERT_EQ(worker.Join(), absl::OkStatus());
  }
  ExpectEndsAs(&job, 6, expected);
}

}  // namespace
}  // namespace agg
