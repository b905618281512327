// Epochs, draining and the rule without threads, shards or a clock. Members
// and rounds are tested through Coordinator.
#include "server/coordinator/coordinator_state.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class CoordinatorStateTest : public testing::Test {
 protected:
  explicit CoordinatorStateTest(bool pipelined = false)
      : state_(Options(pipelined)) {}

  static CoordinatorOptions Options(bool pipelined) {
    CoordinatorOptions options;
    options.combine.schedule.learning_rate = 0.5;
    options.pipelined = pipelined;
    return options;
  }
  // Returns its number.
  uint64_t BeginEpoch(int now) {
    const std::optional<uint64_t> epoch = state_.NextEpochIfDue(At(now));
    EXPECT_TRUE(epoch.has_value());
    EXPECT_TRUE(state_.BeginEpoch(*epoch, std::nullopt, At(now)));
    return *epoch;
  }
  // Rank 0 joins with that session, and its seed is published.
  void JoinAndSeed(uint64_t session) {
    JobState* const job = state_.job();
    JoinCall join;
    join.manifest = Manifest{{{"w", {3}, "", false}}};
    ASSERT_EQ(job->CheckJoin(join), absl::OkStatus());
    job->FinishJoin(join, job->BeginJoin(join, session), At(1));
    CommitCall commit;
    commit.kind = PushKind::kSeed;
    commit.epoch = job->epoch();
    commit.session = session;
    ASSERT_TRUE(job->Commit(commit, At(1)).ok());
    job->FinishSeed(0, At(1));
  }
  // Round 0 of a pipelined job is closed with the row of that session, whose
  // first wave has run.
  void BeginWaves(uint64_t session) {
    JobState* const job = state_.job();
    job->NoteComplete(0, {{session, 0, 0, 1}}, /*takes_commits=*/true, At(1));
    CommitCall commit;
    commit.epoch = job->epoch();
    commit.session = session;
    commit.with_frame = true;
    ASSERT_TRUE(IsPending(job->Commit(commit, At(1))));
    ASSERT_TRUE(state_.CloseRoundIfDue(At(1)).has_value());
    job->BeginWaves(2);
    ASSERT_EQ(state_.NextWave().kind, WaveStep::Kind::kRun);
    job->AdvanceWave({});
    ASSERT_EQ(state_.NextWave().kind, WaveStep::Kind::kWait);
  }
  void Attend(uint64_t session) {
    state_.event_streams()->Open(session, [this](const JobEvent& event) {
      events_.push_back(event.kind);
    });
  }

  CoordinatorState state_;
  std::vector<JobEventKind> events_;
};

// The README's job, of which one worker was started.
TEST_F(CoordinatorStateTest, WhoHasNotJoinedIsSaidWithinSeconds) {
  state_.SayWhoIsWaitedFor(At(0)).Run();  // no epoch, nobody to wait for
  BeginEpoch(1);
  Attend(5);
  state_.SayWhoIsWaitedFor(At(1)).Run();
  EXPECT_THAT(events_, ElementsAre());
  EXPECT_EQ(state_.NextWake(At(1)), At(6));
  state_.SayWhoIsWaitedFor(At(6)).Run();
  EXPECT_THAT(events_, ElementsAre(JobEventKind::kWaiting));
  EXPECT_EQ(state_.NextWake(At(6)), At(66));
  state_.SayWhoIsWaitedFor(At(7)).Run();
  state_.BeginDraining().Run();
  state_.SayWhoIsWaitedFor(At(100)).Run();
  EXPECT_THAT(events_,
              ElementsAre(JobEventKind::kWaiting, JobEventKind::kDraining));
}

class PipelinedStateTest : public CoordinatorStateTest {
 protected:
  PipelinedStateTest() : CoordinatorStateTest(/*pipelined=*/true) {}
};

TEST_F(PipelinedStateTest, WhomAWaveWaitsForIsSaid) {
  BeginEpoch(1);
  JoinAndSeed(7);
  Attend(7);
  state_.SayWhoIsWaitedFor(At(1)).Run();
  BeginWaves(7);
  state_.SayWhoIsWaitedFor(At(1)).Run();
  EXPECT_EQ(state_.NextWake(At(1)), At(31));  // the lease ends
  ASSERT_TRUE(state_.job()->Renew(7, At(100)).ok());
  EXPECT_EQ(state_.NextWake(At(1)), At(61));
  state_.SayWhoIsWaitedFor(At(61)).Run();
  EXPECT_THAT(events_, ElementsAre(JobEventKind::kWaiting));
  EXPECT_EQ(state_.NextWake(At(61)), At(121));
  state_.job()->NoteComplete(0, {{7, 0, 0, 2}}, /*takes_commits=*/true, At(62));
  EXPECT_EQ(state_.NextWake(At(62)), absl::InfinitePast());
  state_.SayWhoIsWaitedFor(At(62)).Run();
  EXPECT_THAT(events_, ElementsAre(JobEventKind::kWaiting));
}

// Nobody is told of it, so that the loop need not wake for it either.
TEST_F(PipelinedStateTest, ADrainingJobSleepsThroughAWave) {
  BeginEpoch(1);
  JoinAndSeed(7);
  state_.SayWhoIsWaitedFor(At(1)).Run();
  BeginWaves(7);
  state_.SayWhoIsWaitedFor(At(1)).Run();
  ASSERT_TRUE(state_.job()->Renew(7, At(100)).ok());
  state_.BeginDraining().Run();
  EXPECT_EQ(state_.NextWake(At(62)), At(130));
}

TEST_F(CoordinatorStateTest, CallsWaitForAllShards) {
  EXPECT_TRUE(absl::IsUnavailable(state_.CheckAcceptingCalls()));
  EXPECT_EQ(state_.Status(At(0)).phase, JobPhase::kWaitingForShards);
  ASSERT_TRUE(state_.NextEpochIfDue(At(1)).has_value());
  state_.AttachFailed(absl::UnavailableError("shard 1: refused"));
  EXPECT_THAT(state_.CheckAcceptingCalls().message(),
              HasSubstr("waiting for all shards: shard 1: refused"));
  EXPECT_EQ(state_.NextEpochIfDue(At(1)), std::nullopt);  // once a second
  const uint64_t epoch = BeginEpoch(2);
  EXPECT_EQ(epoch, 2000000u);  // microseconds
  EXPECT_EQ(state_.CheckAcceptingCalls(), absl::OkStatus());
  EXPECT_EQ(state_.CheckAcceptingCalls(epoch), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(state_.CheckAcceptingCalls(epoch - 1)));
  EXPECT_EQ(state_.Status(At(2)).phase, JobPhase::kUnseeded);
}

// It may seed and leave before anybody has asked whether the job may begin.
TEST_F(CoordinatorStateTest, AJobWhoseOnlyWorkerSeedsAndLeavesEnds) {
  BeginEpoch(1);
  JoinAndSeed(7);
  EXPECT_EQ(state_.job()->Leave(7, At(1)), absl::OkStatus());
  EXPECT_TRUE(state_.job()->finished());
}

TEST_F(CoordinatorStateTest, EpochsGrowThoughTheClockStandsStill) {
  const uint64_t first = BeginEpoch(10);
  state_.LoseEpoch(first, absl::UnavailableError("gone"), At(5)).Run();
  state_.TakeLoss();
  EXPECT_GT(*state_.NextEpochIfDue(At(6)), first);
}

TEST_F(CoordinatorStateTest, ALossIsForTheShardsFirst) {
  const uint64_t epoch = BeginEpoch(1);
  Attend(7);
  state_.LoseEpoch(epoch - 1, absl::UnavailableError("old"), At(2)).Run();
  EXPECT_TRUE(state_.epoch_on());
  for (int repeat = 0; repeat < 2; ++repeat) {
    state_.LoseEpoch(epoch, absl::UnavailableError("gone"), At(2)).Run();
  }
  EXPECT_THAT(events_, ElementsAre(JobEventKind::kShardLost));
  EXPECT_FALSE(state_.event_streams()->Attends(7));
  EXPECT_EQ(state_.Status(At(2)).phase, JobPhase::kShardLost);
  EXPECT_EQ(state_.NextEpochIfDue(At(9)), std::nullopt);
  const std::optional<EpochLoss> loss = state_.TakeLoss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->epoch, epoch);
  EXPECT_THAT(loss->reason.message(), HasSubstr("shard lost: gone"));
  EXPECT_FALSE(state_.TakeLoss().has_value());
  EXPECT_TRUE(state_.NextEpochIfDue(At(9)).has_value());
}

TEST_F(CoordinatorStateTest, AnEpochLostWhileAttachingDoesNotBegin) {
  const std::optional<uint64_t> epoch = state_.NextEpochIfDue(At(1));
  state_.LoseEpoch(*epoch, absl::UnavailableError("gone"), At(1)).Run();
  EXPECT_FALSE(state_.BeginEpoch(*epoch, std::nullopt, At(1)));
  EXPECT_FALSE(state_.epoch_on());
  EXPECT_FALSE(state_.has_loss());  // no worker and no shard knew of it
}

TEST_F(CoordinatorStateTest, DrainingIsAnnouncedOnce) {
  BeginEpoch(1);
  Attend(7);
  for (int repeat = 0; repeat < 2; ++repeat) state_.BeginDraining().Run();
  EXPECT_THAT(events_, ElementsAre(JobEventKind::kDraining));
  EXPECT_THAT(state_.CheckAcceptingCalls().message(), HasSubstr("draining"));
  EXPECT_TRUE(absl::IsUnavailable(state_.SetRule({}, nullptr).status()));
  EXPECT_FALSE(state_.CloseRoundIfDue(At(2)).has_value());
}

// What the shards have kept decides first: it would undo the change.
TEST_F(CoordinatorStateTest, NoRuleIsSetWithoutAnEpoch) {
  RuleChange rule;
  rule.rule = "adasum";
  absl::Status status = state_.SetRule(rule, nullptr).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("try again"));
  const uint64_t epoch = BeginEpoch(1);
  JoinAndSeed(7);
  state_.LoseEpoch(epoch, absl::UnavailableError("gone"), At(1)).Run();
  status = state_.SetRule(rule, nullptr).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("gone"));
  EXPECT_EQ(state_.CombinationOf(0).rule, "mean");
  EXPECT_EQ(state_.CombinationOf(1).rule, "mean");
}

TEST_F(CoordinatorStateTest, ChangesOfTheRuleAddUp) {
  const uint64_t epoch = BeginEpoch(1);
  JoinAndSeed(7);
  RuleChange rule;
  rule.rule = "adasum";
  EXPECT_EQ(state_.SetRule(rule, nullptr)->first_round, 1u);
  RuleChange scope;
  scope.scope = "global";
  ASSERT_TRUE(state_.SetRule(scope, nullptr).ok());
  EXPECT_EQ(state_.CombinationOf(0).rule, "mean");
  const CombinationNames next = {"adasum", "global", "none"};
  EXPECT_EQ(state_.CombinationOf(1), next);
  EXPECT_EQ(state_.Status(At(1)).next_combination, next);
  // A new epoch begins with what was set.
  state_.LoseEpoch(epoch, absl::UnavailableError("gone"), At(1)).Run();
  state_.TakeLoss();
  BeginEpoch(3);
  EXPECT_EQ(state_.CombinationOf(0), next);
}

}  // namespace
}  // namespace agg
