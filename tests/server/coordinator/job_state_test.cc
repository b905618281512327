// The protocol of members, sessions, leases and the seed, with explicit time.
#include "server/coordinator/job_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_state_fixture.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(JobStateTest, JoinDescribesTheJob) {
  const JoinResult first = Join(0);
  EXPECT_EQ(first.epoch, kEpoch);
  EXPECT_FALSE(first.seeded);
  EXPECT_TRUE(first.seed_role);
  const JoinResult second = Join(5);  // a gap in ranks
  EXPECT_FALSE(second.seed_role);
  EXPECT_NE(second.session, first.session);
  Seed(first.session);
  const JoinResult third = Join(2);
  EXPECT_TRUE(third.seeded);
  EXPECT_FALSE(third.seed_role);
}

TEST_F(JobStateTest, JoinRefusesWhatDoesNotFit) {
  EXPECT_THAT(state_.CheckJoin(Call(8)).message(),
              HasSubstr("rank is 8; allowed: 0 to 7"));
  EXPECT_THAT(state_.CheckJoin(Call(-1)).message(),
              HasSubstr("rank is -1; allowed: 0 to 7"));
  Join(0);
  JoinCall other = Call(1);
  other.manifest = Manifest{{{"w", {4}, "", false}}};
  EXPECT_THAT(state_.CheckJoin(other).message(), HasSubstr("at tensor 0"));
  EXPECT_TRUE(absl::IsAborted(state_.CheckEpoch(kEpoch - 1)));
  EXPECT_THAT(state_.CheckEpoch(kEpoch - 1).message(),
              HasSubstr("current epoch 100"));
}

TEST_F(JobStateTest, ASupersededSessionIsAborted) {
  StartJob(2);
  const uint64_t old = sessions_[0];
  const JoinResult joined = Join(0);
  EXPECT_FALSE(joined.committed);
  EXPECT_EQ(last_change_.replaces, old);
  EXPECT_FALSE(last_change_.keep_row);
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.events.size(), 1u);
  EXPECT_EQ(effects.events[0].first, old);
  EXPECT_EQ(effects.events[0].second.kind, JobEventKind::kSuperseded);
  ASSERT_EQ(effects.ended.size(), 1u);
  EXPECT_EQ(effects.ended[0].first, old);
  EXPECT_TRUE(absl::IsAborted(effects.ended[0].second));
  EXPECT_TRUE(absl::IsAborted(state_.Renew(old, At(1))));
  EXPECT_THAT(Commit(old, 0).status().message(), HasSubstr("superseded"));
  EXPECT_TRUE(absl::IsNotFound(state_.Renew(999, At(1))));
}

TEST_F(JobStateTest, TheSuccessorOfAnUncommittedRankReentersTheOpenRound) {
  StartJob(2);
  const JoinResult joined = Join(0);
  EXPECT_EQ(joined.first_round, 0u);
  EXPECT_TRUE(Commit(joined.session, 0).ok());
  EXPECT_TRUE(Waits(Commit(sessions_[1], 0)));
  EXPECT_TRUE(DecideNow().close);
}

TEST_F(JobStateTest, TheSuccessorOfAJoinerWaitsAsTheJoinerDid) {
  StartJob(1);
  const JoinResult joiner = Join(1);
  EXPECT_EQ(joiner.first_round, 1u);
  EXPECT_EQ(Join(1).first_round, 1u);
}

TEST_F(JobStateTest, ACommittedContributionStandsWhenSuperseded) {
  StartJob(2);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  const JoinResult joined = Join(0);
  EXPECT_TRUE(joined.committed);
  EXPECT_TRUE(last_change_.keep_row);
  EXPECT_EQ(joined.first_round, 1u);
  EXPECT_THAT(Commit(joined.session, 0).status().message(),
              HasSubstr("takes part from round 1"));
  ASSERT_TRUE(Waits(Commit(sessions_[1], 0)));
  EXPECT_TRUE(DecideNow().close);
  EXPECT_EQ(state_.close_snapshot().num_members, 2);
  FinishRound();
  EXPECT_TRUE(state_.contributions().empty());
  EXPECT_TRUE(Waits(Commit(joined.session, 1)));
}

TEST_F(JobStateTest, JoinMidRunTakesEffectInTheNextRound) {
  StartJob(1);
  const JoinResult joined = Join(3);
  EXPECT_EQ(joined.first_round, 1u);
  EXPECT_EQ(Commit(joined.session, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(state_.MissingRanks(), ElementsAre(0));
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  EXPECT_TRUE(DecideNow().close);
  FinishRound();
  EXPECT_THAT(state_.MissingRanks(), ElementsAre(0, 3));
  ASSERT_TRUE(Waits(Commit(sessions_[0], 1)));
  EXPECT_FALSE(DecideNow().close);
  ASSERT_TRUE(Waits(Commit(joined.session, 1)));
  EXPECT_TRUE(DecideNow().close);
}

// Everybody of the open round is gone without a row: it closes empty, or the
// one who joined for the next round would wait for ever.
TEST_F(JobStateTest, AJoinerDoesNotWaitForARoundThatEverybodyLeft) {
  StartJob(1);
  const JoinResult joined = Join(3);
  ASSERT_EQ(joined.first_round, 1u);
  ASSERT_EQ(state_.Leave(sessions_[0]), absl::OkStatus());
  EXPECT_TRUE(DecideNow().close);
  FinishRound();
  EXPECT_FALSE(state_.finished());
  EXPECT_TRUE(Waits(Commit(joined.session, 1)));
}

TEST_F(JobStateTest, ARankMayComeBackToAnEmptyRound) {
  StartJob(1);
  Expire(31);
  EXPECT_TRUE(state_.members().empty());
  EXPECT_FALSE(state_.finished());
  EXPECT_EQ(Join(0).first_round, 0u);
}

// --- Leases ------------------------------------------------------------------

TEST_F(JobStateTest, ALeaseEndsUnlessRenewed) {
  StartJob(2);  // leases of 30 s from At(0)
  ASSERT_EQ(state_.Renew(sessions_[0], At(20)), absl::OkStatus());
  EXPECT_EQ(state_.ExpireLeases(At(29)), At(30));
  EXPECT_EQ(state_.members().size(), 2u);
  EXPECT_EQ(state_.ExpireLeases(At(30)), At(50));
  EXPECT_EQ(state_.members().count(0), 1u);
  EXPECT_EQ(state_.members().count(1), 0u);
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.changes.size(), 1u);
  EXPECT_TRUE(effects.changes[0].remove);
  EXPECT_EQ(effects.changes[0].session, sessions_[1]);
  ASSERT_EQ(effects.events.size(), 1u);
  EXPECT_EQ(effects.events[0].second.kind, JobEventKind::kExpired);
  const absl::Status status = Commit(sessions_[1], 0).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("Join again"));
}

TEST_F(JobStateTest, ABrokenConnectionShortensTheLease) {
  StartJob(1);
  const uint64_t session = sessions_[0];
  ASSERT_EQ(state_.Renew(session, At(10)), absl::OkStatus());
  ASSERT_EQ(state_.BeginGrace(session, At(12)), absl::OkStatus());
  EXPECT_EQ(state_.ExpireLeases(At(16)), At(17));
  ASSERT_EQ(state_.Renew(session, At(16)), absl::OkStatus());
  EXPECT_EQ(state_.ExpireLeases(At(17)), At(46));
  // The grace never lengthens what is left of a lease.
  ASSERT_EQ(state_.BeginGrace(session, At(44)), absl::OkStatus());
  EXPECT_EQ(state_.ExpireLeases(At(45)), At(46));
}

TEST_F(JobStateTest, DeathBeforeCommitRemovesTheRow) {
  StartJob(2);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  EXPECT_FALSE(DecideNow().close);
  ASSERT_EQ(state_.Renew(sessions_[0], At(20)), absl::OkStatus());
  Expire(31);
  EXPECT_TRUE(DecideNow().close);
  EXPECT_THAT(ContributingRanks(), ElementsAre(0));
  ASSERT_EQ(state_.TakeEffects().changes.size(), 1u);
}

TEST_F(JobStateTest, DeathAfterCommitKeepsTheRow) {
  StartJob(2);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0)));
  ASSERT_EQ(state_.Renew(sessions_[1], At(20)), absl::OkStatus());
  Expire(31);
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.changes.size(), 1u);
  EXPECT_TRUE(effects.changes[0].keep_row);
  EXPECT_FALSE(DecideNow().close);
  ASSERT_TRUE(Waits(Commit(sessions_[1], 0)));
  EXPECT_TRUE(DecideNow().close);
  EXPECT_THAT(ContributingRanks(), ElementsAre(0, 1));
}

// --- The seed ----------------------------------------------------------------

TEST_F(JobStateTest, OnlyOneSeeds) {
  Join(0);
  Join(1);
  EXPECT_TRUE(
      absl::IsAlreadyExists(Commit(sessions_[1], 0, PushKind::kSeed).status()));
  EXPECT_TRUE(Waits(Commit(sessions_[0], 0, PushKind::kSeed)));
  EXPECT_EQ(state_.seed_committed(), sessions_[0]);
  state_.FinishSeed(0, At(0));
  const auto outcome = Commit(sessions_[0], 0, PushKind::kSeed);
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->has_value());
  EXPECT_EQ((*outcome)->kind, OutcomeKind::kSeeded);
  EXPECT_THAT(Commit(sessions_[1], 0, PushKind::kSeed).status().message(),
              HasSubstr("current version 0"));
}

TEST_F(JobStateTest, NothingCommitsBeforeTheSeed) {
  Join(0);
  EXPECT_THAT(Commit(sessions_[0], 0).status().message(),
              HasSubstr("no version is published yet"));
}

TEST_F(JobStateTest, TheSeedRolePassesWhenTheSeederDiesBeforeCommitting) {
  Join(4);
  Join(2);
  Join(3);
  ASSERT_EQ(state_.Leave(sessions_[4]), absl::OkStatus());
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.changes.size(), 2u);
  EXPECT_TRUE(effects.changes[0].remove);
  EXPECT_TRUE(effects.changes[1].seed_role);
  EXPECT_EQ(effects.changes[1].session, sessions_[2]);
  ASSERT_EQ(effects.events.size(), 1u);
  EXPECT_EQ(effects.events[0].first, sessions_[2]);
  EXPECT_EQ(effects.events[0].second.kind, JobEventKind::kSeedRole);
  EXPECT_TRUE(Waits(Commit(sessions_[2], 0, PushKind::kSeed)));
}

TEST_F(JobStateTest, TheNextJoinerSeedsWhenTheOnlySeederIsGone) {
  Join(0);
  ASSERT_EQ(state_.Leave(sessions_[0]), absl::OkStatus());
  // Its manifest goes with it.
  ASSERT_TRUE(state_.ManifestIsUnheld());
  JoinCall other = Call(1);
  other.manifest = Manifest{{{"w", {4}, "", false}}};
  EXPECT_TRUE(absl::IsUnavailable(state_.CheckJoin(other)));
  state_.ForgetManifest();
  EXPECT_EQ(state_.CheckJoin(other), absl::OkStatus());
  EXPECT_TRUE(Join(1).seed_role);
  EXPECT_FALSE(state_.finished());
}

TEST_F(JobStateTest, ACommittedSeedOutlivesItsSeeder) {
  Join(0);
  Join(1);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0, PushKind::kSeed)));
  const uint64_t seeder = sessions_[0];
  ASSERT_EQ(state_.Leave(seeder), absl::OkStatus());
  EXPECT_EQ(state_.seed_committed(), seeder);
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.changes.size(), 1u);  // no role is passed on
  EXPECT_TRUE(effects.changes[0].keep_row);
  EXPECT_FALSE(Join(2).seed_role);
}

TEST_F(JobStateTest, ACommittedSeedOutlivesASupersededSeeder) {
  Join(0);
  ASSERT_TRUE(Waits(Commit(sessions_[0], 0, PushKind::kSeed)));
  const uint64_t seeder = sessions_[0];
  EXPECT_FALSE(Join(0).seed_role);
  EXPECT_EQ(state_.seed_committed(), seeder);
  EXPECT_TRUE(
      absl::IsAlreadyExists(Commit(sessions_[0], 0, PushKind::kSeed).status()));
}

TEST_F(JobStateTest, ASupersededSeedersRoleGoesToItsSuccessor) {
  Join(0);
  const JoinResult joined = Join(0);
  EXPECT_TRUE(joined.seed_role);
  EXPECT_TRUE(last_change_.seed_role);
  EXPECT_TRUE(Waits(Commit(joined.session, 0, PushKind::kSeed)));
}

TEST_F(JobStateTest, ARefusedJoinIsUndone) {
  const SessionChange change = state_.BeginJoin(Call(0), 77);
  EXPECT_TRUE(change.seed_role);
  state_.CancelJoin(change);
  const JobEffects effects = state_.TakeEffects();
  ASSERT_EQ(effects.changes.size(), 1u);
  EXPECT_TRUE(effects.changes[0].remove);
  EXPECT_EQ(effects.changes[0].session, 77u);
  EXPECT_TRUE(state_.members().empty());
  EXPECT_FALSE(state_.manifest().has_value());
  EXPECT_TRUE(Join(0).seed_role);
}

}  // namespace
}  // namespace agg
