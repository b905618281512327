// P50: what was answered OK is there after kill -9 of any process.
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "server/base/job_phase.h"
#include "tests/server/round/recovery_fixture.h"
#include "tests/server/round/reply.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

using EvictReply = Reply<absl::StatusOr<Eviction>>;
using RuleReply = Reply<absl::StatusOr<RuleChangeResult>>;

class KeptFactsTest : public RecoveryTest {
 protected:
  ClusterOptions Replicated(int num_shards) const {
    ClusterOptions options = Options(num_shards);
    options.coordinator.replicated = true;
    options.shard.replicated = true;
    // Who is left goes on alone.
    options.coordinator.floor_policy = FloorPolicy::kWarn;
    return options;
  }

  static EvictReply Evict(LocalCluster* cluster, int32_t rank) {
    EvictReply reply;
    cluster->coordinator()->Evict(rank, "stalled", reply.callback());
    cluster->coordinator()->RunOnce();
    return reply;
  }
  static RuleReply SetRule(LocalCluster* cluster, const std::string& rule) {
    RuleChange change;
    change.rule = rule;
    RuleReply reply;
    cluster->coordinator()->SetRuleEverywhere(change, reply.callback());
    cluster->coordinator()->RunOnce();
    return reply;
  }
  // It is over for good, and its worker is told why.
  static void ExpectEvicted(RunningJob* job, int32_t rank, uint64_t version) {
    EXPECT_THAT(job->cluster.coordinator()->Status().workers,
                SizeIs(job->workers.size() - 1));
    const absl::Status status =
        job->workers[static_cast<size_t>(rank)].Resume(version, 0);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("evicted: stalled"));
  }
};

TEST_F(KeptFactsTest, AnEvictionSurvivesEachKillAndAllOfThemInTurn) {
  for (const int num_shards : {2, 3}) {
    RunningJob job(Replicated(num_shards), SmallManifest(), 2);
    RunTo(&job, 2);
    const EvictReply reply = Evict(&job.cluster, 1);
    ASSERT_TRUE(reply.called());
    ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
    for (int round = 0; round < 2; ++round) {
      job.cluster.RestartCoordinator();
      ExpectEvicted(&job, 1, 2);
      for (int shard = 1; shard < num_shards; ++shard) {
        job.cluster.RestartShard(shard);
        ExpectEvicted(&job, 1, 2);
      }
    }
  }
}

// The shard cannot be told: nobody is told OK before it has been, in the next
// epoch.
TEST_F(KeptFactsTest, AnEvictionIsAnsweredWhenAllShardsHaveIt) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(1)->FailNextSession(absl::UnavailableError("frozen"));
  const EvictReply reply = Evict(&job.cluster, 1);
  EXPECT_FALSE(reply.called());
  job.cluster.Advance(absl::Seconds(2));
  ASSERT_TRUE(reply.called());
  ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
  job.cluster.RestartCoordinator();
  ExpectEvicted(&job, 1, 2);
}

TEST_F(KeptFactsTest, SoIsALeave) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(1)->FailNextSession(absl::UnavailableError("frozen"));
  Reply<absl::Status> reply;
  Coordinator* const coordinator = job.cluster.coordinator();
  coordinator->Leave(coordinator->Status().epoch, job.workers[1].session(),
                     reply.callback());
  coordinator->RunOnce();
  EXPECT_FALSE(reply.called());
  job.cluster.Advance(absl::Seconds(2));
  ASSERT_TRUE(reply.called());
  EXPECT_EQ(reply.Get(), absl::OkStatus());
  job.cluster.RestartCoordinator();
  EXPECT_THAT(job.cluster.coordinator()->Status().workers, SizeIs(1));
}

// The shard does not come back: the wait ends, says what has happened, and may
// be repeated.
TEST_F(KeptFactsTest, AWaitForAShardThatDoesNotComeBackEnds) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(1)->FailNextSession(absl::UnavailableError("frozen"));
  const EvictReply reply = Evict(&job.cluster, 1);
  job.cluster.clock()->Advance(absl::Seconds(29));
  job.cluster.coordinator()->CheckDeadlines();
  EXPECT_FALSE(reply.called());
  job.cluster.clock()->Advance(absl::Seconds(1));
  job.cluster.coordinator()->CheckDeadlines();
  ASSERT_TRUE(reply.called());
  const absl::Status status = reply.Get().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("rank 1 is evicted, but not all shards have confirmed"),
            HasSubstr("frozen"), HasSubstr("may be repeated")));
  job.cluster.Advance(absl::Seconds(2));
  const EvictReply again = Evict(&job.cluster, 1);
  ASSERT_TRUE(again.called());
  EXPECT_TRUE(absl::IsNotFound(again.Get().status()));
  ExpectEvicted(&job, 1, 2);
}

TEST_F(KeptFactsTest, WhatWaitsIsRefusedWhenTheCoordinatorStops) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.peer(1)->FailNextSession(absl::UnavailableError("frozen"));
  const EvictReply reply = Evict(&job.cluster, 1);
  EXPECT_FALSE(reply.called());
  job.cluster.coordinator()->Drain(absl::InfinitePast());
  ASSERT_TRUE(reply.called());
  EXPECT_TRUE(absl::IsUnavailable(reply.Get().status()));
}

// Nothing is seeded: shards hold no copies, and keep what operators were told.
TEST_F(KeptFactsTest, WhatWasToldBeforeTheSeedSurvives) {
  for (const int killed : {0, 1}) {
    LocalCluster cluster(Replicated(2));
    LocalWorker first(&cluster, 0, SmallManifest());
    LocalWorker second(&cluster, 1, SmallManifest());
    ASSERT_EQ(first.Join(), absl::OkStatus());
    ASSERT_EQ(second.Join(), absl::OkStatus());
    const RuleReply rule = SetRule(&cluster, "adasum");
    ASSERT_TRUE(rule.called());
    ASSERT_TRUE(rule.Get().ok()) << rule.Get().status();
    const EvictReply evicted = Evict(&cluster, 1);
    ASSERT_TRUE(evicted.called());
    ASSERT_TRUE(evicted.Get().ok()) << evicted.Get().status();
    if (killed == 0) {
      cluster.RestartCoordinator();
    } else {
      cluster.RestartShard(1);
    }
    ASSERT_EQ(cluster.coordinator()->Status().phase, JobPhase::kUnseeded);
    EXPECT_EQ(cluster.coordinator()->Status().combination.rule, "adasum");
    const absl::Status status = second.Resume(0, 0);
    EXPECT_TRUE(absl::IsAborted(status)) << killed << ": " << status;
  }
}

// Without second copies a kill costs the rounds since the last checkpoint, and
// not what operators were told since then. The rounds before the rule's are
// done again as they were.
TEST_F(KeptFactsTest, ARewindUndoesNothingThatOperatorsWereTold) {
  for (const int killed : {0, 1}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ClusterOptions options = WithCheckpoints(2, 2);
    options.coordinator.floor_policy = FloorPolicy::kWarn;
    RunningJob job(options, SmallManifest(), 2);
    RunTo(&job, 2);
    job.cluster.AwaitCheckpoints(1);
    RunTo(&job, 3);
    const RuleReply rule = SetRule(&job.cluster, "adasum");
    ASSERT_TRUE(rule.Get().ok()) << rule.Get().status();
    EXPECT_EQ(rule.Get()->first_round, 4u);
    const EvictReply evicted = Evict(&job.cluster, 1);
    ASSERT_TRUE(evicted.Get().ok()) << evicted.Get().status();
    if (killed == 0) {
      job.cluster.RestartCoordinator();
    } else {
      job.cluster.RestartShard(1);
    }
    const JobStatus status = job.cluster.coordinator()->Status();
    EXPECT_EQ(status.version, 2u) << status.message;
    EXPECT_EQ(status.combination.rule, "adacons");
    EXPECT_EQ(status.next_combination.rule, "adasum");
    ExpectEvicted(&job, 1, 2);
  }
}

// --- Recoveries take the time that memory takes ------------------------------

// One failed epoch for each member before: SetSession has a deadline.
TEST_F(KeptFactsTest, RowsAreReservedBeforeMembersAreGivenBack) {
  ClusterOptions options = Replicated(2);
  options.coordinator.workers = 3;
  options.shard.workers = 3;
  options.coordinator.max_workers = 3;
  options.shard.max_workers = 3;
  RunningJob job(options, SmallManifest(), 3);
  RunTo(&job, 2);
  job.cluster.peer(1)->RowsTakeLong();
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_EQ(status.phase, JobPhase::kOpen) << status.message;
  EXPECT_THAT(status.workers, SizeIs(3));
}

}  // namespace
}  // namespace agg
