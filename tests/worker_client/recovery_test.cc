// Rounds that outlive the end of an epoch (P26, P27).
#include "tests/worker_client/recovery_fixture.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RoundOutcome::Kind;
using Used = EpochJob::Used;

TEST_F(RecoveryTest, ARowIsPushedAgainToTheShardThatLostIt) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const int kept = job.frames(0), lost = job.frames(1);
  const auto outcome = StepThrough(0.25f, [&] { job.Lose(1); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(outcome->version, 2u);
  EXPECT_EQ(parameters, After({0.5f, 0.25f}));
  // Seed and two rounds were pushed; the lost shard has the second one twice.
  EXPECT_EQ(job.frames(0), kept / 2 * 3);
  EXPECT_EQ(job.frames(1), lost / 2 * 4);
  const uint64_t session = client->session();
  EXPECT_THAT(job.used(),
              ElementsAre(Used{0, session, 0}, Used{1, session, 0}));
  const v1::JoinRequest join = job.joins().back();
  EXPECT_EQ(join.resume_session(), session);
  EXPECT_EQ(join.resume_version(), 1u);
  EXPECT_EQ(join.resume_made(), 1000u);
}

TEST_F(RecoveryTest, WhereNoShardLostItTheRowIsCommittedAgain) {
  Begin();
  const int before = job.frames(0);
  const auto outcome = StepThrough(0.25f, [] {});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(job.frames(0), 2 * before);
  EXPECT_EQ(parameters, After({0.25f}));
}

// Step 9 of the crash points: published, and nobody was told.
TEST_F(RecoveryTest, ARoundThatHasEndedIsAskedForItsOutcome) {
  Begin();
  const int before = job.frames(1);
  const auto outcome = StepThrough(0.25f, [&] {
    job.CloseSilently();
    job.Lose(1);
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(job.frames(1), 2 * before);
  EXPECT_EQ(parameters, After({0.25f}));
  EXPECT_EQ(job.used().size(), 1u);
  EXPECT_TRUE(client->Wait(1)->included);
}

TEST_F(RecoveryTest, ARoundThatEndedWithoutTheRowSaysSo) {
  Begin();
  const auto outcome = StepThrough(0.25f, [&] { job.CloseWithout(); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->included);
  EXPECT_EQ(outcome->kind, Kind::kApplied);
  EXPECT_EQ(parameters, seed);
  EXPECT_EQ(client->version(), 1u);
}

TEST_F(RecoveryTest, APushGoesOnWhereItWasCut) {
  Begin();
  const int before = job.frames(0), stalled = job.frames(1);
  job.StallPushes(1, true);
  auto pending = BeginStep(0.25f);
  job.AwaitFrame(0, 2 * before);
  job.AwaitFrame(1, stalled + 1);
  job.End(kReason);
  job.Lose(1);
  job.StallPushes(1, false);
  job.Open();
  const auto outcome = pending.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(parameters, After({0.25f}));
  EXPECT_THAT(job.used(), ElementsAre(Used{0, client->session(), 0}));
}

// No event says so: the shards and the coordinator know the client's epoch no
// more when it comes back to them.
TEST_F(RecoveryTest, AnEpochThatEndedUnheardIsNoticed) {
  Begin();
  job.End(kReason, /*said=*/false);
  job.Lose(0);
  job.Open();
  auto outcome = Step(0.5f);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  job.End(kReason, /*said=*/false);
  job.Open();
  EXPECT_EQ(client->LatestVersion().value_or(77), 1u);
  job.End(kReason, /*said=*/false);
  job.Open();
  EXPECT_TRUE(client->Pull(1, Write(&parameters)).ok());
  job.End(kReason, /*said=*/false);
  job.Open();
  EXPECT_TRUE(client->Wait(1)->included);
  EXPECT_EQ(parameters, After({0.5f}));
}

TEST_F(RecoveryTest, AShardThatHasMovedIsFound) {
  Begin();
  const std::string before = job.address(1);
  const auto outcome = StepThrough(0.25f, [&] { job.Move(1); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_NE(job.address(1), before);
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(RecoveryTest, WhatIsWaitedForIsHeard) {
  Begin();
  const auto outcome = StepThrough(0.25f, [&] {
    // Answered by nobody until then.
    const ClientEvent event = heard.Await(ClientEvent::Kind::kRecovering);
    EXPECT_EQ(ToString(event),
              std::string("waiting for the job to come back: ") + kReason);
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(ToString(heard.Await(ClientEvent::Kind::kRecovered)),
            "the job is back: epoch 1001, version 0");
}

// --- Push and Commit alone ---------------------------------------------------

TEST_F(RecoveryTest, ACommitWhoseRowIsLostAsksForAnotherPush) {
  Begin();
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.5f))).ok());
  job.End(kReason);
  job.Lose(1);
  job.Open();
  const absl::Status lost = client->Commit({}).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(lost), AllOf(HasSubstr("shard 1 (" + job.address(1)),
                                   HasSubstr("Push again")));
  // Any gradient will do: it is another attempt, of which no half is mixed with
  // the first one.
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.25f))).ok());
  const auto outcome = client->Commit({});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(job.parameters(), After({0.25f}));
  EXPECT_THAT(job.used(), ElementsAre(Used{0, client->session(), 1}));
}

TEST_F(RecoveryTest, ACommitWhoseRowIsSafeGoesOn) {
  Begin();
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.5f))).ok());
  job.End(kReason);
  job.Open();
  const auto outcome = client->Commit({});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
}

// The first gradient counted; the second one came too late, and an epoch ended
// before anybody said so.
TEST_F(RecoveryTest, IncludedTellsAboutTheLastGradientHoweverLate) {
  Begin();
  job.Hold();
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.5f))).ok());
  auto first =
      std::async(std::launch::async, [&] { return client->Commit({}); });
  job.AwaitCommit(2);
  job.CloseSilently();
  job.End(kReason);
  job.Release();
  job.Open();
  EXPECT_TRUE(first.get()->included);
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.25f))).ok());
  const auto second = client->Commit({});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(second->included);
  EXPECT_FALSE(client->Wait(1)->included);
  EXPECT_EQ(job.parameters(), After({0.5f}));
}

// --- Rewinds
// -------------------------------------------------------------------

TEST_F(RecoveryTest, ARewindGivesTheParametersOfItsVersion) {
  Begin();
  for (const float scale : {0.5f, 0.25f, 0.125f}) {
    ASSERT_TRUE(Step(scale).ok());
  }
  const auto outcome = StepThrough(0.75f, [&] { job.Rewind(1); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(outcome->round, 3u);
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_FALSE(outcome->included);
  EXPECT_THAT(outcome->message, HasSubstr("from version 3 to version 1"));
  EXPECT_EQ(parameters, After({0.5f}));
  EXPECT_EQ(client->version(), 1u);
  const ClientEvent event = heard.Await(ClientEvent::Kind::kRewound);
  EXPECT_EQ(event.version, 1u);
  EXPECT_EQ(ToString(event),
            "the job has gone back: from version 3 to version 1");

  const auto next = Step(0.25f);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->kind, Kind::kApplied);
  EXPECT_TRUE(next->included);
  EXPECT_EQ(parameters, After({0.5f, 0.25f}));
}

// It has gone back to this worker's own version number, and beyond: what the
// worker has is of another past all the same (P23).
TEST_F(RecoveryTest, AVersionThatSomebodyElseMadeIsAnother) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const auto outcome = StepThrough(0.75f, [&] {
    job.Rewind(0);
    job.CloseWithout();
    job.CloseWithout();
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(outcome->version, 2u);
  EXPECT_EQ(parameters, seed);
}

// The lease's thread goes on by itself while the worker computes.
TEST_F(RecoveryTest, ARewindInTheMidstOfAComputationPushesNothing) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  ASSERT_TRUE(Step(0.25f).ok());
  const int before = job.frames(0);
  job.End(kReason);
  job.Rewind(0);
  job.Open();
  heard.Await(ClientEvent::Kind::kRecovered);
  const auto outcome = Step(0.125f);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(outcome->version, 0u);
  EXPECT_EQ(job.frames(0), before);
  EXPECT_EQ(parameters, seed);
  EXPECT_TRUE(job.used().empty());
}

TEST_F(RecoveryTest, AfterARewindPushAndCommitNameTheVersionToPull) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  ASSERT_TRUE(Step(0.25f).ok());
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.5f))).ok());
  job.End(kReason);
  job.Rewind(1);
  job.Open();
  for (const absl::Status& status :
       {client->Commit({}).status(), client->Push(Read(seed)),
        client->Wait(3).status(), client->Pull(2, Write(&parameters))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("Pull version 1"));
  }
  ASSERT_TRUE(client->Pull(1, Write(&parameters)).ok());
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.125f))).ok());
  EXPECT_TRUE(client->Commit({}).ok());
  EXPECT_EQ(job.parameters(), After({0.5f, 0.125f}));
}

// The others go on without it, as with a quorum: the version of the rewind is
// gone before this worker asks for it.
TEST_F(RecoveryTest, AfterARewindWhoIsSlowGetsTheNewestVersion) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.End(kReason);
  job.Rewind(0);
  job.Open();
  heard.Await(ClientEvent::Kind::kRecovered);
  for (int round = 0; round < 3; ++round) job.CloseWithout();
  const auto outcome = Step(0.125f);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(outcome->version, 3u);
  EXPECT_EQ(parameters, seed);
  const auto next = Step(0.25f);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->included);
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(RecoveryTest, TwoEndsBeforeTheWorkerComesBackAreARewindStill) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.End(kReason);
  job.Rewind(0);
  job.Open();
  heard.Await(ClientEvent::Kind::kRecovered);
  job.End(kReason);
  job.Open();
  const auto outcome = Step(0.125f);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(parameters, seed);
}

}  // namespace
}  // namespace agg
