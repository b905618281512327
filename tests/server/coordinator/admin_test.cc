// What operators change while a job runs: its rule, and who is in.
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Manifest TestManifest() { return MakeManifest({{9, 7}, {}, {31}}); }

Tensors RowOf(uint64_t round, int rank) {
  return RandomTensors(TestManifest(), 500 + 10 * round + rank);
}

// Round `round` of `job` over the rows of round `rows`.
void RunRound(RunningJob* job, uint64_t round, uint64_t rows) {
  for (LocalWorker& worker : job->workers) {
    ASSERT_TRUE(worker.Contribute(round, RowOf(rows, worker.rank())).ok());
  }
  job->cluster.Settle();
}

RuleChange ToRule(const std::string& rule) {
  RuleChange change;
  change.rule = rule;
  return change;
}

class SetRule : public testing::TestWithParam<const char*> {};

// From its first round on the job gives the bits of a job that has had that
// rule from the start, and the parameters that this one has then.
TEST_P(SetRule, ContinuesAsAFreshJobWithThatRule) {
  const Manifest manifest = TestManifest();
  RunningJob changed(MakeClusterOptions(2, 3), manifest, 3);
  RunningJob unchanged(MakeClusterOptions(2, 3), manifest, 3);
  RunRound(&changed, 0, 0);
  RunRound(&unchanged, 0, 0);
  // Round 1 is open, and one row of it is in.
  ASSERT_TRUE(changed.workers[0].Contribute(1, RowOf(1, 0)).ok());
  const auto result = changed.cluster.coordinator()->SetRule(ToRule(GetParam()),
                                                             /*check=*/nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->first_round, 2u);
  EXPECT_EQ(result->before.rule, "mean");
  EXPECT_EQ(result->after.rule, GetParam());
  for (int rank : {1, 2}) {
    ASSERT_TRUE(changed.workers[rank].Contribute(1, RowOf(1, rank)).ok());
  }
  RunRound(&unchanged, 1, 1);
  EXPECT_EQ(*changed.cluster.Pull(2), *unchanged.cluster.Pull(2));

  const ClusterOptions options = MakeClusterOptions(2, 3, GetParam());
  RunningJob fresh(options, manifest, 3, *changed.cluster.Pull(2));
  for (uint64_t round : {2, 3}) {
    RunRound(&changed, round, round);
    RunRound(&fresh, round - 2, round);
    const Tensors expected = *fresh.cluster.Pull(round - 1);
    EXPECT_EQ(*changed.cluster.Pull(round + 1), expected);
    RunRound(&unchanged, round, round);
    EXPECT_NE(*unchanged.cluster.Pull(round + 1), expected);
  }
  const auto reports = changed.cluster.reports();
  ASSERT_THAT(reports, SizeIs(4));
  EXPECT_EQ(reports[1].combination.rule, "mean");
  EXPECT_EQ(reports[2].combination.rule, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Rules, SetRule,
                         testing::Values("sum", "unit_mean", "adasum",
                                         "adasum_counted", "adacons"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

TEST(AdminTest, AdaconsMomentumLivesAsLongAsItsRule) {
  ClusterOptions options = MakeClusterOptions(1, 3, "adacons");
  options.coordinator.combine.rule.scope = Scope::kGlobal;
  RunningJob plain(options, TestManifest(), 3);
  RunningJob scaled(options, TestManifest(), 3);
  RunningJob sharper(options, TestManifest(), 3);
  for (RunningJob* job : {&plain, &scaled, &sharper}) {
    RunRound(job, 0, 0);
    RuleChange change;
    if (job == &scaled) change.step_scale = "linear";
    if (job == &sharper) change.adacons_beta = 0.98;
    if (job != &plain) {
      ASSERT_TRUE(job->cluster.coordinator()->SetRule(change, nullptr).ok());
    }
    RunRound(job, 1, 1);
    RunRound(job, 2, 2);
  }
  const Decision a = plain.cluster.reports()[2].decision;
  const Decision b = scaled.cluster.reports()[2].decision;
  EXPECT_EQ(a.coefficients, b.coefficients);
  EXPECT_EQ(3.0 * a.learning_rate, b.learning_rate);
  EXPECT_NE(a.coefficients, sharper.cluster.reports()[2].decision.coefficients);
}

TEST(AdminTest, TauGoesOnAndThenGrowsByTheGain) {
  RunningJob job(MakeClusterOptions(1, 3), TestManifest(), 3);
  RuleChange change;
  change.step_scale = "adascale";
  RunRound(&job, 0, 0);
  ASSERT_TRUE(job.cluster.coordinator()->SetRule(change, nullptr).ok());
  RunRound(&job, 1, 1);
  RunRound(&job, 2, 2);
  const auto reports = job.cluster.reports();
  EXPECT_EQ(reports[1].decision.tau, 2.0);
  EXPECT_EQ(reports[2].decision.tau, 2.0 + reports[2].decision.gain);
  EXPECT_GT(reports[2].decision.gain, 1.0);
}

TEST(AdminTest, TheFirstRoundNeedNotWait) {
  LocalCluster cluster(MakeClusterOptions(1, 1));
  const auto result = cluster.coordinator()->SetRule(ToRule("adasum"), nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->first_round, 0u);
  EXPECT_EQ(cluster.Status().combination.rule, "adasum");
  LocalWorker worker = Joined(&cluster, 0, TestManifest());
  EXPECT_EQ(worker.joined().combination.rule, "adasum");
}

TEST(AdminTest, EverybodyHearsTheRuleOfTheirRound) {
  RunningJob job(MakeClusterOptions(1, 2), TestManifest(), 2);
  Coordinator* coordinator = job.cluster.coordinator();
  ASSERT_TRUE(coordinator->SetRule(ToRule("adasum"), nullptr).ok());
  // Another change before the round opens starts from the first one.
  RuleChange scope;
  scope.scope = "global";
  ASSERT_TRUE(coordinator->SetRule(scope, nullptr).ok());
  const CombinationNames next = {"adasum", "global", "none"};
  EXPECT_EQ(coordinator->Status().combination.rule, "mean");
  EXPECT_EQ(coordinator->Status().next_combination, next);
  EXPECT_EQ(coordinator->Observe()->combination.rule, "mean");
  LocalWorker joiner = Joined(&job.cluster, 3, job.manifest);
  EXPECT_EQ(joiner.joined().first_round, 1u);
  EXPECT_EQ(joiner.joined().combination, next);
  RunRound(&job, 0, 0);
  EXPECT_EQ(coordinator->LastOutcome()->combination.rule, "mean");
  EXPECT_EQ(coordinator->Status().combination, next);
  EXPECT_EQ(coordinator->Observe()->combination, next);
}

// Shards that come back take part in a new epoch; the rule is the process's.
TEST(AdminTest, AnEpochsEndKeepsTheRule) {
  RunningJob job(MakeClusterOptions(2, 1), TestManifest(), 1);
  Coordinator* coordinator = job.cluster.coordinator();
  ASSERT_TRUE(coordinator->SetRule(ToRule("adasum"), nullptr).ok());
  job.cluster.peer(1)->ReportLost(absl::UnavailableError("gone"));
  EXPECT_EQ(coordinator->Status().combination.rule, "mean");
  job.cluster.Advance(absl::Seconds(2));
  // The open round goes on as it began.
  EXPECT_EQ(coordinator->Status().phase, JobPhase::kOpen);
  EXPECT_EQ(coordinator->Status().combination.rule, "mean");
  EXPECT_EQ(coordinator->Status().next_combination.rule, "adasum");
}

TEST(AdminTest, SetRuleIsRefused) {
  RunningJob job(MakeClusterOptions(1, 1), TestManifest(), 1);
  Coordinator* coordinator = job.cluster.coordinator();
  EXPECT_TRUE(absl::IsInvalidArgument(
      coordinator->SetRule(ToRule("median"), nullptr).status()));
  std::optional<SharedManifest> seen;
  const auto refuse = [&](const CombinationNames& names,
                          const std::optional<SharedManifest>& manifest) {
    EXPECT_EQ(names.rule, "adasum");
    seen = manifest;
    return absl::InvalidArgumentError("too large");
  };
  EXPECT_EQ(coordinator->SetRule(ToRule("adasum"), refuse).status().message(),
            "too large");
  EXPECT_EQ((*seen)->tensors.size(), 3u);
  EXPECT_EQ(coordinator->Status().next_combination.rule, "mean");
  RunRound(&job, 0, 0);
  ASSERT_EQ(job.workers[0].Leave(), absl::OkStatus());  // the last one
  EXPECT_EQ(coordinator->SetRule(ToRule("adasum"), nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  coordinator->Drain(absl::InfiniteFuture());
  EXPECT_TRUE(absl::IsUnavailable(
      coordinator->SetRule(ToRule("adasum"), nullptr).status()));
}

// A change that comes while the one before is on its way to the shards is on no
// shard yet.
TEST(AdminTest, AChangeIsAnsweredWhenAllShardsHaveItAndNotBefore) {
  LocalCluster cluster(MakeClusterOptions(1, 1));
  Coordinator* coordinator = cluster.coordinator();
  using RuleReply = Reply<absl::StatusOr<RuleChangeResult>>;
  RuleReply first;
  RuleReply second;
  std::vector<bool> second_called;  // at the beginning of each SetFacts
  cluster.peer(0)->BeforeFacts([&] {
    if (second_called.empty()) {
      coordinator->SetRuleEverywhere(ToRule("sum"), second.callback());
    }
    second_called.push_back(second.called());
  });
  coordinator->SetRuleEverywhere(ToRule("adasum"), first.callback());
  // RunOnce sends what there is once.
  for (int i = 0; i < 2; ++i) cluster.Settle();
  EXPECT_THAT(second_called, ElementsAre(false, false));
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  EXPECT_EQ(first.Get()->after.rule, "adasum");
  ASSERT_TRUE(second.Get().ok()) << second.Get().status();
  EXPECT_EQ(second.Get()->after.rule, "sum");
  EXPECT_EQ(second.num_calls(), 1);
}

// No epoch follows that could bring it to them: the job has finished, and keeps
// no copies.
TEST(AdminTest, AChangeThatComesTooLateForAShardIsRefused) {
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.coordinator.max_rounds = 1;
  RunningJob job(options, TestManifest(), 1);
  Reply<absl::StatusOr<RuleChangeResult>> reply;
  FaultyPeer* const peer = job.cluster.peer(1);
  peer->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kUpdate) return;
    job.cluster.coordinator()->SetRuleEverywhere(ToRule("sum"),
                                                 reply.callback());
  });
  int num_facts = 0;
  peer->BeforeFacts([&] {
    ++num_facts;
    job.cluster.engine(1)->Lose(0, absl::UnavailableError("shard 1 is gone"));
  });
  RunRound(&job, 0, 0);
  for (int i = 0; i < 3; ++i) job.cluster.Settle();
  EXPECT_TRUE(job.cluster.coordinator()->Observe()->finished);
  ASSERT_TRUE(reply.called());
  EXPECT_TRUE(absl::IsUnavailable(reply.Get().status()))
      << reply.Get().status();
  EXPECT_EQ(num_facts, 1);
}

class EvictTest : public testing::Test {
 protected:
  EvictTest() : job_(MakeClusterOptions(2, 2), TestManifest(), 2) {}

  absl::StatusOr<Eviction> Evict(int32_t rank) {
    Reply<absl::StatusOr<Eviction>> reply;
    job_.cluster.coordinator()->Evict(rank, "stalled", reply.callback());
    job_.cluster.Settle();
    return reply.Get();
  }

  RunningJob job_;
};

TEST_F(EvictTest, AStalledWorkersEndClosesTheRound) {
  Coordinator* coordinator = job_.cluster.coordinator();
  const uint64_t epoch = job_.workers[1].joined().epoch;
  std::vector<JobEvent> events;
  ASSERT_TRUE(coordinator
                  ->Attend(epoch, job_.workers[1].session(),
                           [&](const JobEvent& e) { events.push_back(e); })
                  .ok());
  const OutcomeReply waiting = *job_.workers[0].Contribute(0, RowOf(0, 0));
  // A push that is not committed is worth nothing.
  ASSERT_EQ(job_.workers[1].Push(0, RowOf(0, 1)), absl::OkStatus());
  job_.cluster.Settle();
  ASSERT_FALSE(waiting.called());
  const auto eviction = Evict(1);
  ASSERT_TRUE(eviction.ok()) << eviction.status();
  EXPECT_EQ(eviction->session, job_.workers[1].session());
  EXPECT_FALSE(eviction->committed);
  ASSERT_TRUE(waiting.called());
  EXPECT_THAT(waiting.Get()->ranks, ElementsAre(0));
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, JobEventKind::kEvicted);
  EXPECT_EQ(events[0].message, "evicted: stalled");
  // The coordinator and the shards say the same.
  for (const absl::Status& status :
       {coordinator->Renew(epoch, job_.workers[1].session()).status(),
        job_.workers[1].Commit(1).Get().status(),
        job_.workers[1].Push(1, RowOf(1, 1))}) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("evicted: stalled"));
  }
  EXPECT_TRUE(absl::IsNotFound(Evict(1).status()));
  LocalWorker successor(&job_.cluster, 1, job_.manifest);
  EXPECT_EQ(successor.Join(), absl::OkStatus());
}

TEST_F(EvictTest, ALongReasonIsRefused) {
  absl::Status refused;
  job_.cluster.coordinator()->Evict(
      1, std::string(513, 'x'), [&](const absl::StatusOr<Eviction>& eviction) {
        refused = eviction.status();
      });
  EXPECT_EQ(refused, absl::InvalidArgumentError(
                         "reason is 513 bytes; allowed: at most 512 bytes"));
  EXPECT_TRUE(Evict(1).ok());
}

TEST_F(EvictTest, WhatWasCommittedStands) {
  const OutcomeReply evicted = *job_.workers[1].Contribute(0, RowOf(0, 1));
  job_.cluster.Settle();
  EXPECT_TRUE(Evict(1)->committed);
  EXPECT_TRUE(absl::IsAborted(evicted.Get().status()));
  const OutcomeReply other = *job_.workers[0].Contribute(0, RowOf(0, 0));
  job_.cluster.Settle();
  EXPECT_THAT(other.Get()->ranks, ElementsAre(0, 1));
}

TEST_F(EvictTest, TheLastOnesEvictionDoesNotFinishTheJob) {
  EXPECT_TRUE(Evict(0).ok());
  EXPECT_TRUE(Evict(1).ok());
  EXPECT_FALSE(job_.cluster.coordinator()->finished());
  EXPECT_TRUE(absl::IsNotFound(Evict(0).status()));
  job_.cluster.coordinator()->Drain(absl::InfiniteFuture());
  EXPECT_TRUE(absl::IsUnavailable(Evict(0).status()));
}

TEST(AdminTest, TheLastRoundsAreKept) {
  RunningJob job(MakeClusterOptions(1, 1), TestManifest(), 1);
  Coordinator* coordinator = job.cluster.coordinator();
  EXPECT_THAT(coordinator->Rounds(), SizeIs(0));
  EXPECT_THAT(coordinator->TensorOrthogonality(), SizeIs(0));
  job.cluster.clock()->Advance(absl::Seconds(3));
  for (uint64_t round = 0; round < 258; ++round) RunRound(&job, round, round);
  const std::vector<RoundResult> rounds = coordinator->Rounds();
  ASSERT_THAT(rounds, SizeIs(256));
  EXPECT_EQ(rounds.front().round, 2u);
  EXPECT_EQ(rounds.back().version, 258u);
  EXPECT_EQ(rounds.back().ended_at, job.cluster.clock()->Now());
  EXPECT_GT(rounds.back().work, absl::ZeroDuration());
  EXPECT_THAT(coordinator->TensorOrthogonality(), SizeIs(3));
}

}  // namespace
}  // namespace agg
