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
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using EvictReply = Reply<absl::StatusOr<Eviction>>;
using ReduceReply = Reply<absl::StatusOr<ReduceAnswer>>;
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
    EXPECT_THAT(job->cluster.Status().workers, SizeIs(job->workers.size() - 1));
    const absl::Status status =
        job->workers[static_cast<size_t>(rank)].Resume(version, 0);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("evicted: stalled"));
  }
};

TEST_F(KeptFactsTest, AnEvictionSurvivesEachKillAndAllOfThemInTurn) {
  for (const int num_shards : {2, 3}) {
    TrainedJob job(Replicated(num_shards), 2);
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
  TrainedJob job(Replicated(2), 2);
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
  TrainedJob job(Replicated(2), 2);
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
  EXPECT_THAT(job.cluster.Status().workers, SizeIs(1));
}

// The shard does not come back: the wait ends, says what has happened, and may
// be repeated.
TEST_F(KeptFactsTest, AWaitForAShardThatDoesNotComeBackEnds) {
  TrainedJob job(Replicated(2), 2);
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
  TrainedJob job(Replicated(2), 2);
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
    LocalWorker first = Joined(&cluster, 0, SmallManifest());
    LocalWorker second = Joined(&cluster, 1, SmallManifest());
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
    ASSERT_EQ(cluster.Status().phase, JobPhase::kUnseeded);
    EXPECT_EQ(cluster.Status().combination.rule, "adasum");
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
    TrainedJob job(options, 2, 1);
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
    const JobStatus status = job.cluster.Status();
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
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kOpen) << status.message;
  EXPECT_THAT(status.workers, SizeIs(3));
}

// P51: who has not had the sums gets the same ones as who has, whichever
// process is lost between the two.
class KeptSumsTest : public KeptFactsTest {
 protected:
  static ReduceReply Reduce(RunningJob* job, int32_t rank, double value,
                            uint64_t number = 1, bool withdraw = false) {
    Coordinator* const coordinator = job->cluster.coordinator();
    const JobStatus status = coordinator->Status();
    ReduceCall call;
    call.session = job->workers[static_cast<size_t>(rank)].session();
    call.name = {100 + static_cast<uint64_t>(rank), number};
    call.withdraw = withdraw;
    if (!withdraw) {
      call.what = "the sum of x";
      call.values = {value};
    }
    ReduceReply reply;
    coordinator->Reduce(status.epoch, call, reply.callback());
    return reply;
  }
  static void ExpectSums(const ReduceReply& reply, double sum) {
    ASSERT_TRUE(reply.called());
    ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
    ASSERT_NE(reply.Get()->made, nullptr);
    EXPECT_THAT(reply.Get()->made->sums, ElementsAre(sum));
    EXPECT_THAT(reply.Get()->made->ranks, ElementsAre(0, 1));
    EXPECT_EQ(reply.num_calls(), 1);
  }
};

TEST_F(KeptSumsTest, SurviveEachKill) {
  for (const int killed : {0, 1, 2}) {
    TrainedJob job(Replicated(3), 2);
    const ReduceReply first = Reduce(&job, 0, 1);
    job.cluster.Settle();
    EXPECT_FALSE(first.called());
    Reduce(&job, 1, 2);
    job.cluster.Settle();
    ExpectSums(first, 3);
    if (killed == 0) {
      job.cluster.RestartCoordinator();
    } else {
      job.cluster.RestartShard(killed);
    }
    ResumeAll(&job, 2, 0);
    // It has not heard, and would give another value now.
    const ReduceReply again = Reduce(&job, 1, 77);
    job.cluster.Settle();
    ExpectSums(again, 3);
    // All go on.
    Reduce(&job, 0, 10, 2);
    const ReduceReply next = Reduce(&job, 1, 20, 2);
    job.cluster.Settle();
    ExpectSums(next, 30);
    RunTo(&job, 3);
    Reduce(&job, 0, 5, 3);
    const ReduceReply later = Reduce(&job, 1, 6, 3);
    job.cluster.Settle();
    ExpectSums(later, 11);
  }
}

// Without second copies, to a checkpoint before it.
TEST_F(KeptSumsTest, SurviveARewind) {
  for (const int killed : {0, 1}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    TrainedJob job(WithCheckpoints(2, 2), 2, 1);
    RunTo(&job, 3);
    Reduce(&job, 0, 1);
    const ReduceReply first = Reduce(&job, 1, 2);
    job.cluster.Settle();
    ExpectSums(first, 3);
    if (killed == 0) {
      job.cluster.RestartCoordinator();
    } else {
      job.cluster.RestartShard(1);
    }
    ASSERT_EQ(job.cluster.Status().version, 2u);
    ResumeAll(&job, 2, 0);
    // It goes back, and gives nothing more.
    const ReduceReply back = Reduce(&job, 0, 0, 1, true);
    job.cluster.Settle();
    ExpectSums(back, 3);
  }
}

// Nothing is left of the model, and nothing to go back to.
TEST_F(KeptSumsTest, SurviveTheLossOfTheParameters) {
  TrainedJob job(Options(2), 2);
  Reduce(&job, 0, 1);
  const ReduceReply first = Reduce(&job, 1, 2);
  job.cluster.Settle();
  ExpectSums(first, 3);
  job.cluster.RestartShard(1);
  ASSERT_EQ(job.cluster.Status().phase, JobPhase::kUnseeded);
  ResumeAll(&job, 2, 0);
  const ReduceReply back = Reduce(&job, 0, 0, 1, true);
  job.cluster.Settle();
  ExpectSums(back, 3);
}

TEST_F(KeptSumsTest, AreToldWhenAllShardsHaveThem) {
  TrainedJob job(Replicated(2), 2);
  const ReduceReply first = Reduce(&job, 0, 1);
  int num_facts = 0;
  job.cluster.peer(1)->BeforeFacts([&] {
    ++num_facts;
    EXPECT_FALSE(first.called());
  });
  Reduce(&job, 1, 2);
  EXPECT_FALSE(first.called());
  job.cluster.Settle();
  EXPECT_GE(num_facts, 1);
  ExpectSums(first, 3);
}

// What is open is of the process alone: it is given again.
TEST_F(KeptSumsTest, WhatIsOpenIsGivenAgain) {
  TrainedJob job(Replicated(2), 2);
  const ReduceReply first = Reduce(&job, 0, 1);
  job.cluster.peer(1)->ReportLost(absl::UnavailableError("gone"));
  ASSERT_TRUE(first.called());
  EXPECT_TRUE(absl::IsUnavailable(first.Get().status()));
  job.cluster.Advance(absl::Seconds(2));
  ResumeAll(&job, 2, 0);
  const ReduceReply second = Reduce(&job, 1, 2);
  job.cluster.Settle();
  EXPECT_FALSE(second.called());
  const ReduceReply again = Reduce(&job, 0, 1);
  job.cluster.Settle();
  ExpectSums(second, 3);
  ExpectSums(again, 3);
}

// Who has given up hears whether the others have its values.
TEST_F(KeptSumsTest, AreToldToWhoTakesItsValuesBack) {
  TrainedJob job(Replicated(2), 2);
  const ReduceReply first = Reduce(&job, 0, 1);
  const ReduceReply back = Reduce(&job, 0, 0, 1, true);
  ASSERT_TRUE(first.called() && back.called());
  EXPECT_TRUE(absl::IsCancelled(first.Get().status()));
  ASSERT_TRUE(back.Get().ok()) << back.Get().status();
  EXPECT_TRUE(back.Get()->withdrawn);
  const ReduceReply second = Reduce(&job, 1, 2);
  job.cluster.Settle();
  EXPECT_FALSE(second.called());
  const ReduceReply third = Reduce(&job, 0, 10, 2);
  job.cluster.Settle();
  ExpectSums(second, 12);
  ExpectSums(third, 12);
  const ReduceReply late = Reduce(&job, 0, 0, 2, true);
  job.cluster.Settle();
  ExpectSums(late, 12);
}

// Facts are sent for those that are made, and not for each who asks again.
TEST_F(KeptSumsTest, AreSentOnce) {
  TrainedJob job(Replicated(2), 2);
  int num_facts = 0;
  job.cluster.peer(1)->BeforeFacts([&] { ++num_facts; });
  Reduce(&job, 0, 1);
  Reduce(&job, 1, 2);
  job.cluster.Settle();
  const int before = num_facts;
  EXPECT_GE(before, 1);
  for (int i = 0; i < 5; ++i) {
    ExpectSums(Reduce(&job, 1, 2), 3);
    job.cluster.Settle();
  }
  EXPECT_EQ(num_facts, before);
}

TEST_F(KeptSumsTest, DoNotWaitForWhoIsEvictedOrHasLeft) {
  TrainedJob job(Replicated(2), 2);
  const ReduceReply first = Reduce(&job, 0, 1);
  const EvictReply evicted = Evict(&job.cluster, 1);
  job.cluster.Settle();
  ASSERT_TRUE(first.called());
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  EXPECT_THAT(first.Get()->made->ranks, ElementsAre(0));
}

// Both would wait for ever: one for the other's row, the other here.
TEST_F(KeptSumsTest, DoNotWaitForWhoWaitsForTheRound) {
  TrainedJob job(Replicated(2), 2);
  const ReduceReply first = Reduce(&job, 0, 1);
  ASSERT_TRUE(job.workers[1]
                  .Contribute(2, RandomTensors(job.manifest, RowSeed(2, 1)))
                  .ok());
  job.cluster.Settle();
  ASSERT_TRUE(first.called());
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  EXPECT_THAT(first.Get()->made->ranks, ElementsAre(0));
  EXPECT_THAT(first.Get()->made->left_out, ElementsAre(1));
}

// An accuracy at the end is what most jobs have.
TEST_F(KeptSumsTest, AreMadeInAJobThatHasFinished) {
  ClusterOptions options = Replicated(2);
  options.coordinator.max_rounds = 2;
  TrainedJob job(options, 2);
  ASSERT_TRUE(job.cluster.coordinator()->finished());
  Reduce(&job, 0, 1);
  const ReduceReply second = Reduce(&job, 1, 2);
  job.cluster.Settle();
  ExpectSums(second, 3);
}

TEST_F(KeptSumsTest, AreRefusedWithoutASessionAndBeforeTheSeed) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  ReduceCall call;
  call.name = {1, 1};
  call.what = "x";
  call.values = {1};
  Coordinator* coordinator = job.cluster.coordinator();
  ReduceReply observer;
  coordinator->Reduce(coordinator->Status().epoch, call, observer.callback());
  EXPECT_TRUE(absl::IsNotFound(observer.Get().status()))
      << observer.Get().status();
  ReduceReply stale;
  coordinator->Reduce(coordinator->Status().epoch - 1, call, stale.callback());
  EXPECT_TRUE(absl::IsAborted(stale.Get().status()));
  LocalCluster cluster(Replicated(2));
  LocalWorker first = Joined(&cluster, 0, SmallManifest());
  call.session = first.session();
  ReduceReply unseeded;
  coordinator = cluster.coordinator();
  coordinator->Reduce(coordinator->Status().epoch, call, unseeded.callback());
  EXPECT_THAT(std::string(unseeded.Get().status().message()),
              HasSubstr("no parameters yet"));
}

}  // namespace
}  // namespace agg
