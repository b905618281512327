// A job that goes on after an epoch: who comes back, with which session, and
// whose parameters are of a past that was given up (P23, P26, P27).
#include <utility>

#include "absl/status/status.h"
#include "server/coordinator/job_state.h"
#include "tests/server/coordinator/job_state_fixture.h"

namespace agg {
namespace {

constexpr uint64_t kBefore = 90;   // an epoch before the fixture's
constexpr uint64_t kSession = 40;  // of rank 1, from then

class JobResumeTest : public JobStateTest {
 protected:
  JobResumeTest() { state_ = Restored(); }

  // At version 5, made in kBefore; rank 1 was in, its row of round 4 is used.
  static JobStart Start() {
    JobStart start;
    start.id = {kBefore, 5};
    start.manifest = *Call(0).manifest;
    start.members = {{1, kSession, 2, "w1"}};
    start.highest_session = 44;
    start.record.history = 80;
    start.record.started = true;
    RecordedOutcome outcome;
    outcome.outcome.epoch = kBefore;
    outcome.outcome.round = 4;
    outcome.outcome.version = 5;
    outcome.outcome.ranks = {1};
    outcome.included[kSession] = 3;
    start.record.outcomes.push_back(outcome);
    start.record.used_rows[1] = {kSession, 4, 3};
    return start;
  }
  JobState Restored() { return JobState(options_, kEpoch, At(0), Start()); }

  static JoinCall Resuming(int32_t rank, uint64_t session, uint64_t version,
                           uint64_t made) {
    JoinCall call = Call(rank);
    call.resume_session = session;
    call.resume_version = version;
    call.resume_made = made;
    return call;
  }
};

TEST_F(JobResumeTest, GoesOnWhereItWas) {
  EXPECT_TRUE(state_.seeded());
  EXPECT_TRUE(state_.started());
  EXPECT_EQ(state_.version(), 5u);
  EXPECT_EQ(state_.id().made, kBefore);
  EXPECT_EQ(state_.history(), 80u);
  EXPECT_EQ(state_.MissingRanks(), std::vector<int32_t>({1}));
  JobRecord record;
  state_.FillRecord(&record);
  EXPECT_EQ(record.history, 80u);
  EXPECT_TRUE(record.started);
  EXPECT_EQ(record.outcomes.size(), 1u);
  EXPECT_EQ(record.used_rows[1].attempt, 3u);
}

TEST_F(JobResumeTest, AMemberHasAFreshLeaseAndKeepsItsSession) {
  const JoinCall call = Resuming(1, kSession, 5, kBefore);
  ASSERT_EQ(state_.CheckJoin(call), absl::OkStatus());
  const auto session = state_.SessionFor(call);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(*session, kSession);
  ASSERT_TRUE(state_.Resumes(*session));
  const JoinResult result = state_.ResumeJoin(call, At(3));
  EXPECT_EQ(result.session, kSession);
  EXPECT_EQ(result.first_round, 2u);
  EXPECT_EQ(result.made, kBefore);
  EXPECT_FALSE(result.rewound);
  EXPECT_EQ(state_.ExpireLeases(At(4)), At(3) + options_.lease);
}

TEST_F(JobResumeTest, AShortLeaseIsLongEnoughToFindTheWayBack) {
  CoordinatorOptions options = options_;
  options.lease = absl::Seconds(1);
  JobState state(options, kEpoch, At(0), Start());
  state.ExpireLeases(At(9));
  EXPECT_EQ(state.members().size(), 1u);
  state.ExpireLeases(At(10));
  EXPECT_EQ(state.members().size(), 0u);
}

TEST_F(JobResumeTest, TheOutcomeOfTheLastRoundIsKept) {
  const Answer used = state_.Answer({PushKind::kGradient, 4, kSession, 3});
  ASSERT_TRUE(used.ok() && used->has_value());
  EXPECT_TRUE((*used)->included);
  const Answer other = state_.Answer({PushKind::kGradient, 4, kSession, 2});
  ASSERT_TRUE(other.ok() && other->has_value());
  EXPECT_FALSE((*other)->included);
}

// However late it is asked, and though outcomes are kept of a few rounds only.
TEST_F(JobResumeTest, ARowThatWasUsedIsNotCalledLost) {
  JobStart start = Start();
  start.id.version = 400;
  start.record.outcomes.clear();
  JobState state(options_, kEpoch, At(0), std::move(start));
  const Answer used = state.Answer({PushKind::kGradient, 4, kSession, 3});
  ASSERT_TRUE(used.ok() && used->has_value());
  EXPECT_TRUE((*used)->included);
  EXPECT_EQ((*used)->version, 5u);
  EXPECT_EQ((*used)->epoch, 0u);  // who made it is not kept
  EXPECT_TRUE(absl::IsOutOfRange(
      state.Answer({PushKind::kGradient, 4, kSession, 2}).status()));
  EXPECT_TRUE(absl::IsOutOfRange(
      state.Answer({PushKind::kGradient, 3, kSession, 3}).status()));
}

TEST_F(JobResumeTest, NewSessionsAreAboveAllThatWereHeardOf) {
  const auto session = state_.SessionFor(Call(3));
  ASSERT_TRUE(session.ok());
  EXPECT_GT(*session, 44u);
  EXPECT_GT(*session, kEpoch * 4096);
}

TEST_F(JobResumeTest, OneThatNobodyKnowsIsAdmittedIntoTheOpenRound) {
  const JoinCall call = Resuming(2, 43, 5, kBefore);
  const auto session = state_.SessionFor(call);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(*session, 43u);
  ASSERT_FALSE(state_.Resumes(*session));
  const SessionChange change = state_.BeginJoin(call, *session);
  EXPECT_EQ(change.first_round, 5u);
  EXPECT_EQ(state_.FinishJoin(call, change, At(0)).first_round, 5u);
}

// Shards have ended it, and would refuse its calls for ever.
TEST_F(JobResumeTest, OneWhoseJoinWasRefusedGetsANewNumber) {
  const JoinCall call = Resuming(2, 43, 5, kBefore);
  state_.CancelJoin(state_.BeginJoin(call, 43));
  const auto session = state_.SessionFor(call);
  ASSERT_TRUE(session.ok());
  EXPECT_GT(*session, kEpoch * 4096);
}

TEST_F(JobResumeTest, TheHighestSessionOfARankWins) {
  const JoinCall lower = Resuming(1, kSession - 1, 5, kBefore);
  EXPECT_TRUE(absl::IsAborted(state_.SessionFor(lower).status()));
  const JoinCall higher = Resuming(1, kSession + 1, 5, kBefore);
  EXPECT_EQ(*state_.SessionFor(higher), kSession + 1);
  const SessionChange change = state_.BeginJoin(higher, kSession + 1);
  EXPECT_EQ(change.replaces, kSession);
}

// A shard that has heard of the rank's newer session in this epoch takes the
// reports of a lower one for late: its row would be waited for without end.
TEST_F(JobResumeTest, ALowerOneGetsANewNumberAlsoWhenTheHigherHasGone) {
  const JoinCall newer = Resuming(2, 43, 5, kBefore);
  ASSERT_EQ(*state_.SessionFor(newer), 43u);
  state_.FinishJoin(newer, state_.BeginJoin(newer, 43), At(0));
  ASSERT_EQ(state_.Leave(43), absl::OkStatus());
  const JoinCall older = Resuming(2, 42, 5, kBefore);
  EXPECT_GT(*state_.SessionFor(older), kEpoch * 4096);
  // Those of other ranks are not concerned.
  EXPECT_EQ(*state_.SessionFor(Resuming(3, 41, 5, kBefore)), 41u);
}

TEST_F(JobResumeTest, ASessionThatIsOverIsNotGivenAgain) {
  Expire(100);
  EXPECT_GT(*state_.SessionFor(Resuming(1, kSession, 5, kBefore)),
            kEpoch * 4096);
}

TEST_F(JobResumeTest, ASupersededOneHearsItAgain) {
  const SessionChange change =
      state_.BeginJoin(Call(1), *state_.SessionFor(Call(1)));
  state_.FinishJoin(Call(1), change, At(0));
  EXPECT_TRUE(absl::IsAborted(
      state_.SessionFor(Resuming(1, kSession, 5, kBefore)).status()));
}

TEST_F(JobResumeTest, NumbersThatNobodyCanHaveAreNotTaken) {
  EXPECT_EQ(*state_.SessionFor(Resuming(2, ~uint64_t{0}, 5, kBefore)),
            *state_.SessionFor(Call(2)));
}

TEST_F(JobResumeTest, AnotherRanksSessionIsRefusedByName) {
  const absl::Status status =
      state_.SessionFor(Resuming(0, kSession, 5, kBefore)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(std::string(status.message()).find("resume_session is 40"),
            std::string::npos);
}

TEST_F(JobResumeTest, WhoseParametersAreOfAnotherPast) {
  const auto rewound = [&](uint64_t version, uint64_t made) {
    return state_.ResumeJoin(Resuming(1, kSession, version, made), At(0))
        .rewound;
  };
  EXPECT_FALSE(rewound(5, kBefore));
  EXPECT_FALSE(rewound(5, 0)) << "not known";
  EXPECT_TRUE(rewound(6, kBefore)) << "above the job's";
  EXPECT_TRUE(rewound(5, kBefore - 1)) << "made by another epoch";
  EXPECT_FALSE(rewound(3, 85)) << "nobody knows better";
  EXPECT_TRUE(rewound(3, 79)) << "before the last rewind";
}

TEST_F(JobResumeTest, AFinishedJobStaysFinishedAndAnswersItsMembers) {
  state_.StayFinished("max_rounds (5) is reached", false);
  EXPECT_TRUE(state_.finished());
  EXPECT_TRUE(absl::IsFailedPrecondition(state_.CheckJoin(Call(3))));
  const JoinCall call = Resuming(1, kSession, 4, kBefore);
  ASSERT_EQ(state_.CheckJoin(call), absl::OkStatus());
  EXPECT_TRUE(state_.ResumeJoin(call, At(0)).finished);
  EXPECT_TRUE(state_.TakeEffects().events.empty());
}

}  // namespace
}  // namespace agg
