// Commits, outcomes, and how a job ends.
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/job_state.h"
#include "tests/server/coordinator/job_state_fixture.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using JobRoundsTest = JobStateTest;

TEST_F(JobRoundsTest, ACommitWaitsForItsRoundAndRepeatsAreTheSame) {
  StartJob(2);
  EXPECT_TRUE(Waits(Commit(sessions_[0], 0)));
  EXPECT_TRUE(Waits(Commit(sessions_[0], 0)));
  EXPECT_THAT(ContributingRanks(), ElementsAre(0));
  EXPECT_TRUE(Waits(Commit(sessions_[1], 0)));
  FinishRound();
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Answer answer = Commit(sessions_[0], 0);
    ASSERT_TRUE(answer.ok());
    ASSERT_TRUE(answer->has_value());
    EXPECT_TRUE((*answer)->included);
    EXPECT_EQ((*answer)->version, 1u);
    EXPECT_THAT((*answer)->ranks, ElementsAre(0, 1));
  }
}

TEST_F(JobRoundsTest, ALateCommitIsNotIncluded) {
  StartJob(2);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  state_.BeginClosing();
  EXPECT_TRUE(Waits(Commit(sessions_[1], 0)));  // while the round runs
  EXPECT_THAT(ContributingRanks(), ElementsAre(0));
  FinishRound();
  const Answer answer = Commit(sessions_[1], 0);
  ASSERT_TRUE(answer.ok());
  ASSERT_TRUE(answer->has_value());
  EXPECT_FALSE((*answer)->included);
  EXPECT_TRUE(Waits(Commit(sessions_[1], 1)));
}

TEST_F(JobRoundsTest, RefusesARoundToComeAndAnotherEpoch) {
  StartJob(1);
  EXPECT_THAT(Commit(sessions_[0], 1).status().message(),
              HasSubstr("commit of round 1; current version 0"));
  CommitCall stale;
  stale.epoch = kEpoch - 1;
  stale.session = sessions_[0];
  EXPECT_TRUE(absl::IsAborted(state_.Commit(stale, At(0)).status()));
}

TEST_F(JobRoundsTest, ChecksWhatACommitSays) {
  StartJob(1);
  CommitCall call;
  call.epoch = kEpoch;
  call.session = sessions_[0];
  const auto error = [&] {
    const absl::Status status = state_.Commit(call, At(0)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  call.info.row.examples = 0;
  EXPECT_THAT(error(), HasSubstr("commit.examples is 0; allowed: 1 or more"));
  call.info.row = RowInfo();
  call.info.row.accumulation = -3;
  EXPECT_THAT(error(), HasSubstr("commit.accumulation is -3; allowed: 1"));
  call.info.row = RowInfo();
  for (double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN()}) {
    call.info.row.loss_scale = scale;
    EXPECT_THAT(error(), HasSubstr("commit.loss_scale is "));
  }
  EXPECT_TRUE(state_.contributions().empty());
}

TEST_F(JobRoundsTest, KeepsSixteenOutcomes) {
  StartJob(1);
  for (uint64_t round = 0; round < 17; ++round) {
    ASSERT_TRUE(Waits(Commit(sessions_[0], round)));
    FinishRound();
  }
  EXPECT_EQ(state_.version(), 17u);
  const absl::Status gone =
      state_.Answer({PushKind::kGradient, 0, sessions_[0]}).status();
  EXPECT_TRUE(absl::IsOutOfRange(gone));
  EXPECT_THAT(gone.message(), HasSubstr("current version 17"));
  for (uint64_t round = 1; round < 17; ++round) {
    ASSERT_TRUE(state_.Answer({PushKind::kGradient, round, 0}).ok());
    EXPECT_EQ((*state_.Answer({PushKind::kGradient, round, 0}))->version,
              round + 1);
    EXPECT_FALSE((*state_.Answer({PushKind::kGradient, round, 0}))->included);
    EXPECT_TRUE(
        (*state_.Answer({PushKind::kGradient, round, sessions_[0]}))->included);
  }
  EXPECT_TRUE(Waits(state_.Answer({PushKind::kGradient, 17, 0})));
}

TEST_F(JobRoundsTest, AHigherAttemptReplacesTheCommitUntilTheRoundCloses) {
  StartJob(2);
  const auto commit = [&](uint32_t attempt) {
    CommitCall call;
    call.epoch = kEpoch;
    call.session = sessions_[0];
    call.attempt = attempt;
    call.row_crc32c = {attempt};
    return state_.Commit(call, At(0));
  };
  const auto included = [&](uint32_t attempt) {
    return (*state_.Answer({PushKind::kGradient, 0, sessions_[0], attempt}))
        ->included;
  };
  ASSERT_TRUE(Waits(commit(1)));
  ASSERT_TRUE(Waits(commit(2)));
  ASSERT_TRUE(Waits(commit(1)));  // replaced: it waits for the outcome
  EXPECT_EQ(state_.contributions().at(0).attempt, 2u);
  EXPECT_EQ(state_.contributions().at(0).row_crc32c,
            std::vector<uint32_t>({2}));
  ASSERT_TRUE(Waits(Commit(sessions_[1], 0)));
  state_.BeginClosing();
  ASSERT_TRUE(Waits(commit(3)));  // too late
  FinishRound();
  EXPECT_FALSE(included(1));
  EXPECT_TRUE(included(2));
  EXPECT_FALSE(included(3));
  EXPECT_FALSE((*commit(4))->included);
}

TEST_F(JobRoundsTest, ExcludedRowsAreNotIncluded) {
  StartJob(2);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  ASSERT_TRUE(Waits(Commit(sessions_[1], 0)));
  RoundResult outcome;
  outcome.round = 0;
  outcome.version = 1;
  outcome.ranks = {1};
  outcome.excluded_ranks = {0};
  state_.FinishRound(outcome, At(0));
  EXPECT_FALSE(
      (*state_.Answer({PushKind::kGradient, 0, sessions_[0]}))->included);
  EXPECT_TRUE(
      (*state_.Answer({PushKind::kGradient, 0, sessions_[1]}))->included);
}

// --- Ends --------------------------------------------------------------------

TEST_F(JobRoundsTest, TheScaleInvariantEndFinishesTheJob) {
  StartJob(1);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  FinishRound(/*finished=*/true);
  EXPECT_TRUE(state_.finished());
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.events.size(), 1u);
  EXPECT_EQ(effects.events[0].first, 0u);  // everybody
  EXPECT_EQ(effects.events[0].second.kind, JobEventKind::kFinished);
  EXPECT_TRUE((*Commit(sessions_[0], 0))->finished);
  EXPECT_EQ(Commit(sessions_[0], 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(state_.Answer({PushKind::kGradient, 1, 0}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(state_.CheckJoin(Call(1)).message(),
              HasSubstr("finished at version 1"));
}

class MaxRoundsTest : public JobStateTest {
 protected:
  static CoordinatorOptions Options() {
    CoordinatorOptions options = JobStateOptions();
    options.max_rounds = 2;
    return options;
  }
  MaxRoundsTest() : JobStateTest(Options()) {}
};

TEST_F(MaxRoundsTest, FinishesTheJob) {
  StartJob(1);
  for (uint64_t round = 0; round < 2; ++round) {
    EXPECT_FALSE(state_.finished());
    ASSERT_TRUE(Waits(Commit(sessions_[0], round)));
    FinishRound();
  }
  EXPECT_TRUE(state_.finished());
}

TEST_F(JobRoundsTest, TheLastToLeaveFinishesTheJob) {
  StartJob(2);
  ASSERT_EQ(state_.Leave(sessions_[0]), absl::OkStatus());
  EXPECT_FALSE(state_.finished());
  ASSERT_EQ(state_.Leave(sessions_[1]), absl::OkStatus());
  EXPECT_TRUE(state_.finished());
  EXPECT_FALSE(state_.Leave(sessions_[1]).ok());
}

TEST_F(JobRoundsTest, ALastLeaverWithACommitFinishesAfterItsRound) {
  StartJob(1);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  ASSERT_EQ(state_.Leave(sessions_[0]), absl::OkStatus());
  EXPECT_FALSE(state_.finished());
  EXPECT_TRUE(DecideNow().close);
  FinishRound();
  EXPECT_TRUE(state_.finished());
  EXPECT_TRUE(
      (*state_.Answer({PushKind::kGradient, 0, sessions_[0]}))->included);
  EXPECT_TRUE((*state_.Answer({PushKind::kGradient, 0, 0}))->finished);
}

TEST_F(JobRoundsTest, DeathOfTheLastIsNotTheEnd) {
  StartJob(1);
  Expire(30);
  EXPECT_TRUE(state_.members().empty());
  EXPECT_FALSE(state_.finished());
}

// --- Beginnings and timeouts -------------------------------------------------

class TimeoutTest : public JobStateTest {
 protected:
  static CoordinatorOptions Options() {
    CoordinatorOptions options = JobStateOptions();
    options.workers = 3;
    options.min_workers = 2;
    options.start_timeout = absl::Seconds(10);
    options.round_timeout = absl::Seconds(4);
    return options;
  }
  TimeoutTest() : JobStateTest(Options()) {}
};

TEST_F(TimeoutTest, RoundZeroWaitsForTheExpectedOrTheTimeout) {
  Join(0);
  Seed(sessions_[0]);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  EXPECT_FALSE(DecideNow(9).start);
  EXPECT_EQ(DecideNow(9).ask_again_at, At(10));
  EXPECT_FALSE(DecideNow(11).start);  // one is below min_workers
  EXPECT_EQ(Join(6, 11).first_round, 0u);
  EXPECT_TRUE(DecideNow(11).start);
  // The second one gets its round_timeout, though the first commit is old.
  EXPECT_FALSE(DecideNow(11).close);
  state_.Start(At(11));
  EXPECT_FALSE(DecideNow(14).close);
  EXPECT_EQ(DecideNow(14).ask_again_at, At(15));
  EXPECT_TRUE(DecideNow(15).close);
  EXPECT_EQ(Join(1, 15).first_round, 1u);
}

TEST_F(TimeoutTest, RoundTimeoutCountsFromTheFirstCommit) {
  for (int rank : {0, 1, 2}) Join(rank);
  Seed(sessions_[0]);
  state_.Start(At(0));
  EXPECT_FALSE(DecideNow(99).close);
  ASSERT_TRUE(Waits(Commit(sessions_[2], 0, PushKind::kGradient, 100)));
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0, PushKind::kGradient, 103)));
  EXPECT_FALSE(DecideNow(103).close);
  EXPECT_TRUE(DecideNow(104).close);
  EXPECT_EQ(state_.waiting_since(), At(100));
  EXPECT_THAT(state_.MissingRanks(), ElementsAre(1));
  FinishRound();
  EXPECT_EQ(state_.waiting_since(), absl::InfiniteFuture());
  EXPECT_FALSE((*Commit(sessions_[1], 0))->included);
}

}  // namespace
}  // namespace agg
