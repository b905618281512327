// What goes wrong in a job: bad rows, failing phases, lost shards (P9, P14).
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/combine/outliers.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Manifest TestManifest() { return MakeManifest({{40}, {7}, {}}); }

class FailureTest : public testing::Test {
 protected:
  FailureTest() : job_(MakeClusterOptions(3, 2), TestManifest(), 2) {}

  FaultyPeer* peer(int ordinal) { return job_.cluster.peer(ordinal); }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  Tensors Row(uint64_t seed) { return RandomTensors(job_.manifest, seed); }
  // Both contribute to `round`.
  std::vector<OutcomeReply> Contribute(uint64_t round) {
    std::vector<OutcomeReply> replies;
    for (LocalWorker& worker : job_.workers) {
      replies.push_back(*worker.Contribute(round, Row(60 + round)));
    }
    job_.cluster.Settle();
    return replies;
  }

  RunningJob job_;
};

// --- Rows --------------------------------------------------------------------

TEST_F(FailureTest, ANonFiniteRowIsLeftOutOnAllShards) {
  Tensors bad = Row(1);
  bad[1][3] = std::numeric_limits<float>::quiet_NaN();
  const OutcomeReply first = *worker(0).Contribute(0, bad);
  const OutcomeReply second = *worker(1).Contribute(0, Row(2));
  const Tensors start = *job_.cluster.Pull(0);
  const Tensors end = *job_.cluster.Pull(1);
  EXPECT_EQ(first.Get()->kind, OutcomeKind::kApplied);
  EXPECT_FALSE(first.Get()->included);
  EXPECT_TRUE(second.Get()->included);
  EXPECT_THAT(first.Get()->ranks, ElementsAre(1));
  EXPECT_THAT(first.Get()->excluded_ranks, ElementsAre(0));
  for (size_t t = 0; t < start.size(); ++t) {
    for (size_t e = 0; e < start[t].size(); ++e) {
      EXPECT_EQ(end[t][e], start[t][e] - 0.5f * Row(2)[t][e]);
    }
  }
}

TEST_F(FailureTest, OnlyNonFiniteRowsSkipTheRound) {
  Tensors bad = Row(1);
  bad[0][39] = std::numeric_limits<float>::infinity();
  std::vector<OutcomeReply> replies;
  for (LocalWorker& worker : job_.workers) {
    replies.push_back(*worker.Contribute(0, bad));
  }
  const Tensors start = *job_.cluster.Pull(0);
  EXPECT_EQ(*job_.cluster.Pull(1), start);
  EXPECT_EQ(replies[0].Get()->kind, OutcomeKind::kSkipped);
  EXPECT_EQ(replies[0].Get()->version, 1u);
  EXPECT_FALSE(replies[0].Get()->included);
  EXPECT_THAT(replies[0].Get()->excluded_ranks, ElementsAre(0, 1));
  EXPECT_FALSE(job_.cluster.reports()[0].applied);
  // The job goes on.
  EXPECT_EQ(Contribute(1)[0].Get()->kind, OutcomeKind::kApplied);
}

// --- Before coefficients -----------------------------------------------------

TEST_F(FailureTest, ACloseThatFailsOnceIsTriedAgain) {
  peer(1)->FailNext(PhaseKind::kClose, absl::InternalError("injected"));
  const auto replies = Contribute(0);
  EXPECT_EQ(replies[0].Get()->kind, OutcomeKind::kApplied);
  EXPECT_TRUE(replies[1].Get()->included);
  EXPECT_THAT(
      peer(0)->phases(),
      ElementsAre(PhaseKind::kPublish, PhaseKind::kClose, PhaseKind::kAbandon,
                  PhaseKind::kClose, PhaseKind::kUpdate));
  // As if nothing had happened.
  RunningJob smooth(MakeClusterOptions(3, 2), TestManifest(), 2);
  for (LocalWorker& worker : smooth.workers) {
    ASSERT_TRUE(worker.Contribute(0, Row(60)).ok());
  }
  EXPECT_EQ(*smooth.cluster.Pull(1), *job_.cluster.Pull(1));
}

TEST_F(FailureTest, ACloseThatFailsTwiceSkipsTheRoundWithTheReason) {
  peer(2)->FailNext(PhaseKind::kClose, absl::InternalError("injected"), 2);
  const auto replies = Contribute(0);
  ASSERT_TRUE(replies[0].Get().ok());
  EXPECT_EQ(replies[0].Get()->kind, OutcomeKind::kSkipped);
  EXPECT_THAT(replies[0].Get()->message,
              testing::AllOf(HasSubstr("failed twice"), HasSubstr("shard 2"),
                             HasSubstr("injected")));
  EXPECT_EQ(*job_.cluster.Pull(1), *job_.cluster.Pull(0));
  EXPECT_EQ(Contribute(1)[0].Get()->kind, OutcomeKind::kApplied);
  EXPECT_EQ(job_.cluster.reports().size(), 2u);
}

// --- After coefficients, and lost shards -------------------------------------

TEST_F(FailureTest, AFailedUpdateEndsTheEpochAndNamesTheShard) {
  OutcomeReply late;
  job_.cluster.coordinator()->WaitRound(0, {PushKind::kGradient, 1, 0},
                                        late.callback());
  // Others may show their parts of version 1: nobody gets all of it.
  Reply<absl::StatusOr<PublishedVersion>> pull;
  job_.cluster.engine(1)->Pull(0, 1, false, pull.callback());
  peer(1)->FailNext(PhaseKind::kUpdate, absl::InternalError("injected"));
  const auto replies = Contribute(0);
  for (const absl::Status& status :
       {replies[0].Get().status(), late.Get().status(), pull.Get().status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("shard 1"));
    EXPECT_THAT(status.message(), HasSubstr("injected"));
  }
  EXPECT_EQ(job_.cluster.Status().phase, JobPhase::kShardLost);
  // Calls of workers are refused.
  EXPECT_TRUE(absl::IsUnavailable(worker(0).Push(1, Row(1))));
  EXPECT_TRUE(absl::IsUnavailable(worker(0).Commit(1).Get().status()));
  EXPECT_TRUE(absl::IsUnavailable(worker(0).Join()));
}

TEST_F(FailureTest, ALostEpochGoesOnWhereItWas) {
  job_.RunRound(0);
  const Tensors last = *job_.cluster.Pull(1);
  const uint64_t old_epoch = worker(0).joined().epoch;
  peer(2)->ReportLost(absl::UnavailableError("shard 2 is lost: broken pipe"));
  job_.cluster.Settle();
  EXPECT_TRUE(absl::IsUnavailable(job_.cluster.coordinator()
                                      ->Renew(old_epoch, worker(0).session())
                                      .status()));
  job_.cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(job_.cluster.Status().phase, JobPhase::kOpen);
  EXPECT_TRUE(absl::IsAborted(worker(0).Commit(1).Get().status()));
  EXPECT_TRUE(absl::IsAborted(worker(0).Push(1, Row(1))));
  EXPECT_EQ(*job_.cluster.Pull(1), last);

  for (int rank : {0, 1}) ASSERT_EQ(worker(rank).Join(), absl::OkStatus());
  EXPECT_GT(worker(0).joined().epoch, old_epoch);
  EXPECT_TRUE(worker(0).joined().seeded);
  EXPECT_EQ(worker(0).joined().version, 1u);
  EXPECT_EQ(worker(0).joined().made, old_epoch);
  EXPECT_EQ(Contribute(1)[1].Get()->kind, OutcomeKind::kApplied);
}

// A status page once waited for rank 1 after the epoch was over.
TEST_F(FailureTest, NobodyIsWaitedForAfterTheEpochsEnd) {
  job_.RunRound(0);
  ASSERT_EQ(worker(0).Push(1, Row(0)), absl::OkStatus());
  const OutcomeReply open = worker(0).Commit(1);
  job_.cluster.Advance(absl::Seconds(2));
  JobStatus status = job_.cluster.Status();
  EXPECT_THAT(status.missing_ranks, testing::Not(testing::IsEmpty()));
  EXPECT_GE(status.workers.at(1).waited_for, absl::Seconds(2));
  EXPECT_THAT(status.shard_errors, testing::ElementsAre("", "", ""));
  peer(2)->ReportLost(absl::UnavailableError("shard 2 is lost: broken pipe"));
  status = job_.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kShardLost);
  EXPECT_THAT(status.missing_ranks, testing::IsEmpty());
  EXPECT_EQ(status.workers.at(1).waited_for, absl::ZeroDuration());
  EXPECT_THAT(status.shard_errors, testing::Each("the epoch is over"));
  EXPECT_TRUE(absl::IsUnavailable(open.Get().status()));
}

TEST_F(FailureTest, AShardLostInTheMiddleOfARound) {
  peer(0)->BeforePhase([this](const Phase& phase) {
    if (phase.kind == PhaseKind::kClose) {
      peer(1)->ReportLost(absl::UnavailableError("shard 1 is lost: reset"));
    }
  });
  const auto replies = Contribute(0);
  for (const OutcomeReply& reply : replies) {
    EXPECT_EQ(reply.num_calls(), 1);
    EXPECT_TRUE(absl::IsUnavailable(reply.Get().status()));
    EXPECT_THAT(reply.Get().status().message(), HasSubstr("shard 1"));
  }
  // Its memory is there, so that all shards have published the round's version.
  EXPECT_EQ(job_.cluster.reports().size(), 1u);
  job_.cluster.Advance(absl::Seconds(2));
  EXPECT_EQ(job_.cluster.Status().version, 1u);
}

TEST_F(FailureTest, AnUnavailableShardIsNotTriedAgain) {
  peer(1)->FailNext(PhaseKind::kClose, absl::UnavailableError("gone"));
  const auto replies = Contribute(0);
  EXPECT_TRUE(absl::IsUnavailable(replies[0].Get().status()));
  EXPECT_EQ(job_.cluster.Status().phase, JobPhase::kShardLost);
}

TEST_F(FailureTest, AttendeesHearOfALostShardOnce) {
  std::vector<JobEventKind> events;
  const auto stream = job_.cluster.coordinator()->Attend(
      worker(0).joined().epoch, worker(0).session(),
      [&](const JobEvent& event) { events.push_back(event.kind); });
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (int repeat = 0; repeat < 2; ++repeat) {
    peer(1)->ReportLost(absl::UnavailableError("shard 1 is lost"));
    job_.cluster.Settle();
  }
  EXPECT_THAT(events, ElementsAre(JobEventKind::kShardLost));
  job_.cluster.coordinator()->Detach(*stream);
}

TEST(FinishedTest, StaysSoThoughAShardIsLost) {
  ClusterOptions options = MakeClusterOptions(3, 2);
  options.coordinator.max_rounds = 1;
  RunningJob job(options, TestManifest(), 2);
  Coordinator* const coordinator = job.cluster.coordinator();
  const uint64_t epoch = job.workers[0].joined().epoch;
  std::vector<JobEventKind> events;
  const auto stream = coordinator->Attend(
      epoch, job.workers[0].session(),
      [&](const JobEvent& event) { events.push_back(event.kind); });
  ASSERT_TRUE(stream.ok()) << stream.status();
  job.RunRound(0);
  const Tensors last = *job.cluster.Pull(1);
  EXPECT_EQ(coordinator->Status().message,
            "finished: max_rounds (1) is reached; to go on with it raise the "
            "limit in the configuration and restart");

  job.cluster.peer(1)->ReportLost(absl::UnavailableError("shard 1 is lost"));
  job.cluster.peer(1)->FailNextSession(absl::UnavailableError("gone"), 100);
  for (int i = 0; i < 10; ++i) job.cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(coordinator->Status().phase, JobPhase::kFinished);
  EXPECT_THAT(coordinator->Status().message, HasSubstr("shard 1 is lost"));
  EXPECT_EQ(coordinator->Status().epoch, epoch);
  EXPECT_TRUE(coordinator->Observe()->finished);
  EXPECT_TRUE(job.workers[1].Commit(0).Get()->finished);
  // In this process shard 1 lives, too: none of them has heard of an end.
  EXPECT_EQ(*job.cluster.Pull(1), last);
  EXPECT_THAT(job.workers[1].Join().message(), HasSubstr("has finished"));

  // Members may go, by themselves or not, though shard 1 cannot hear of it.
  EXPECT_EQ(job.workers[1].Leave(), absl::OkStatus());
  coordinator->Detach(*stream);
  job.cluster.Advance(options.coordinator.lease);
  EXPECT_THAT(coordinator->Status().workers, testing::IsEmpty());
  EXPECT_EQ(coordinator->Status().phase, JobPhase::kFinished);
  EXPECT_EQ(*job.cluster.Pull(1), last);
  EXPECT_THAT(events, ElementsAre(JobEventKind::kFinished));
}

TEST_F(FailureTest, ALossThatComesAfterTheCoordinatorIsIgnored) {
  job_.cluster.StopCoordinator();
  peer(1)->ReportLost(absl::UnavailableError("shard 1 is lost"));
}

// --- Joins -------------------------------------------------------------------

TEST(BudgetTest, ATooLargeManifestIsRefusedAndASmallerOneWorks) {
  ClusterOptions options = MakeClusterOptions(2, 1);
  // The frames of one worker, and little more.
  options.shard.memory_budget.host_bytes = (8 << 20) + 100000;
  LocalCluster cluster(options);
  // On shard 0 it would fit.
  LocalWorker greedy(&cluster, 0, MakeManifest({{50000}, {1}}));
  const absl::Status refused = greedy.Join();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("memory_budget_bytes is 8488608"));
  EXPECT_THAT(refused.message(), HasSubstr("shard 0"));
  // Nobody keeps memory for it.
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(cluster.engine(k)->Status().memory_planned_bytes, 0) << k;
  }
  const Manifest small = MakeManifest({{50}, {1}});
  LocalWorker modest = Joined(&cluster, 0, small);
  EXPECT_TRUE(modest.joined().seed_role);
  EXPECT_EQ(modest.Seed(RandomTensors(small, 1)), absl::OkStatus());
  // A second row brings two more frames.
  LocalWorker second(&cluster, 1, small);
  EXPECT_EQ(second.Join().code(), absl::StatusCode::kFailedPrecondition);
  // The refused one is in nobody's way.
  ASSERT_TRUE(modest.Contribute(0, RandomTensors(small, 2)).ok());
  EXPECT_TRUE(cluster.Pull(1).ok());
}

TEST(RefusedJoinTest, IsUndoneSoThatTheManifestMayChange) {
  LocalCluster cluster(MakeClusterOptions(2, 1));
  LocalWorker first(&cluster, 0, MakeManifest({{50}, {1}}));
  cluster.peer(1)->FailNextSession(absl::InternalError("injected"));
  const absl::Status refused = first.Join();
  EXPECT_THAT(refused.message(), HasSubstr("injected"));
  EXPECT_EQ(cluster.engine(0)->Status().memory_planned_bytes, 0);
  const uint64_t epoch = cluster.engine(0)->Status().epoch;
  const Manifest other = MakeManifest({{9}});
  LocalWorker second = Joined(&cluster, 0, other);
  EXPECT_EQ(second.joined().epoch, epoch);
  EXPECT_EQ(second.Seed(RandomTensors(other, 1)), absl::OkStatus());
}

TEST(RefusedJoinTest, AShardThatCannotUndoItIsLost) {
  LocalCluster cluster(MakeClusterOptions(2, 1));
  LocalWorker first(&cluster, 0, MakeManifest({{50}, {1}}));
  cluster.peer(1)->FailNextSession(absl::InternalError("injected"), 2);
  EXPECT_FALSE(first.Join().ok());
  EXPECT_EQ(cluster.Status().phase, JobPhase::kShardLost);
  cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(first.Join(), absl::OkStatus());
}

TEST(GroupTest, AnUnknownGroupIsRefusedByName) {
  LocalCluster cluster(MakeClusterOptions(2, 1));
  Manifest manifest = TestManifest();
  manifest.tensors[1].group = "no_decay";
  LocalWorker worker(&cluster, 0, manifest);
  const absl::Status status = worker.Join();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("\"t1\" is in group \"no_decay\""));
}

// An outlier in a whole job: all shards leave its row out, and everybody hears
// of it.

constexpr int kWrong = 2;

ClusterOptions Options(int num_shards, OutlierAction action) {
  ClusterOptions options = MakeClusterOptions(num_shards, 5);
  options.coordinator.combine.outliers = {6.0, action};
  return options;
}

// These ranks contribute ones, the wrong one 300s.
std::vector<OutcomeReply> Contribute(const std::vector<int>& ranks,
                                     RunningJob* job) {
  std::vector<OutcomeReply> replies;
  for (const int rank : ranks) {
    const float value = rank == kWrong ? 300.0f : 1.0f;
    LocalWorker& worker = job->workers[static_cast<size_t>(rank)];
    EXPECT_EQ(worker.Push(0, FilledTensors(job->manifest, value)),
              absl::OkStatus());
    replies.push_back(worker.Commit(0));
  }
  job->cluster.Settle();
  return replies;
}

Manifest TwoTensors() { return MakeManifest({{700}, {5}}); }

TEST(OutliersTest, AreLeftOutOnAllShardsByName) {
  for (const int num_shards : {1, 2, 3}) {
    RunningJob job(Options(num_shards, OutlierAction::kExclude), TwoTensors(),
                   5);
    const Tensors start = *job.cluster.Pull(0);
    const auto replies = Contribute({0, 1, 2, 3, 4}, &job);
    for (size_t rank = 0; rank < replies.size(); ++rank) {
      const RoundResult outcome = *replies[rank].Get();
      EXPECT_EQ(outcome.included, rank != kWrong);
      EXPECT_THAT(outcome.ranks, ElementsAre(0, 1, 3, 4));
      EXPECT_THAT(outcome.excluded_ranks, ElementsAre(kWrong));
      EXPECT_THAT(outcome.message,
                  HasSubstr("excluded as outliers: rank 2 (norm "));
    }
    // sgd at a rate of 0.5, over the mean of the others.
    const Tensors end = *job.cluster.Pull(1);
    EXPECT_FLOAT_EQ(end[0][699], start[0][699] - 0.5f);
    EXPECT_FLOAT_EQ(end[1][4], start[1][4] - 0.5f);
  }
}

TEST(OutliersTest, AWarningLetsThemCount) {
  RunningJob job(Options(2, OutlierAction::kWarn), TwoTensors(), 5);
  const Tensors start = *job.cluster.Pull(0);
  const auto replies = Contribute({0, 1, 2, 3, 4}, &job);
  const RoundResult outcome = *replies[kWrong].Get();
  EXPECT_TRUE(outcome.included);
  EXPECT_THAT(outcome.excluded_ranks, IsEmpty());
  EXPECT_THAT(outcome.message, HasSubstr("outliers, which count: rank 2"));
  EXPECT_FLOAT_EQ((*job.cluster.Pull(1))[1][4],
                  start[1][4] - 0.5f * (4 * 1 + 300) / 5);
}

// A quorum counts commits, whatever becomes of them: the round does not wait
// for another row in the outlier's place.
TEST(OutliersTest, AQuorumCountsThem) {
  ClusterOptions options = Options(2, OutlierAction::kExclude);
  options.coordinator.quorum = 4;
  RunningJob job(options, TwoTensors(), 5);
  const auto replies = Contribute({0, 1, 2, 3}, &job);
  ASSERT_EQ(replies[0].num_calls(), 1);
  EXPECT_THAT(replies[0].Get()->ranks, ElementsAre(0, 1, 3));
  EXPECT_THAT(replies[0].Get()->excluded_ranks, ElementsAre(kWrong));
}

TEST(OutliersTest, TooFewRowsAreSaid) {
  ClusterOptions options = Options(2, OutlierAction::kExclude);
  options.coordinator.quorum = 3;
  RunningJob job(options, TwoTensors(), 5);
  const auto replies = Contribute({0, 1, 2}, &job);
  EXPECT_THAT(replies[0].Get()->ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(replies[0].Get()->message,
              HasSubstr("outliers were not looked for"));
}

}  // namespace
}  // namespace agg
