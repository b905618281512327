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
  ExpectIncluded(StepThrough(0.25f, [] {}));
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
  ExpectIncluded(pending.get());
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
  NextEpoch([&] { job.Lose(1); });
  const absl::Status lost = client->Commit({}).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(lost), AllOf(HasSubstr("shard 1 (" + job.address(1)),
                                   HasSubstr("Push again")));
  // Any gradient will do: it is another attempt, of which no half is mixed with
  // the first one.
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.25f))).ok());
  ExpectIncluded(client->Commit({}));
  EXPECT_EQ(job.parameters(), After({0.25f}));
  EXPECT_THAT(job.used(), ElementsAre(Used{0, client->session(), 1}));
}

TEST_F(RecoveryTest, ACommitWhoseRowIsSafeGoesOn) {
  Begin();
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.5f))).ok());
  NextEpoch();
  ExpectIncluded(client->Commit({}));
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
  NextEpoch([&] { job.Release(); });
  EXPECT_TRUE(first.get()->included);
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.25f))).ok());
  const auto second = client->Commit({});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(second->included);
  EXPECT_FALSE(client->Wait(1)->included);
  EXPECT_EQ(job.parameters(), After({0.5f}));
}

// --- Rewinds ----------------------------------------------------------------

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
  NextEpoch([&] { job.Rewind(0); });
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
  NextEpoch([&] { job.Rewind(1); });
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
  NextEpoch([&] { job.Rewind(0); });
  heard.Await(ClientEvent::Kind::kRecovered);
  for (int round = 0; round < 3; ++round) job.CloseWithout();
  const auto outcome = Step(0.125f);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(outcome->version, 3u);
  EXPECT_EQ(parameters, seed);
  ExpectIncluded(Step(0.25f));
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(RecoveryTest, TwoEndsBeforeTheWorkerComesBackAreARewindStill) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  NextEpoch([&] { job.Rewind(0); });
  heard.Await(ClientEvent::Kind::kRecovered);
  NextEpoch();
  const auto outcome = Step(0.125f);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(parameters, seed);
}

// What ends a recovery, and what it comes back to: another session, no
// parameters, a finished job, nobody.

TEST_F(RecoveryTest, AJobThatLostEverythingIsSeededAgain) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const auto outcome = StepThrough(0.25f, [&] { job.LoseAll(); });
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  for (const absl::Status& status :
       {outcome.status(), client->Push(Read(seed)), client->Commit({}).status(),
        client->Pull(1, Write(&parameters)), client->Wait(1).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("Seed again"));
  }
  EXPECT_THAT(ToString(heard.Await(ClientEvent::Kind::kRecovered)),
              HasSubstr("Seed again"));
  parameters = seed;
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  EXPECT_EQ(client->version(), 0u);
  ExpectIncluded(Step(0.125f));
  EXPECT_EQ(parameters, After({0.125f}));
}

TEST_F(RecoveryTest, ASeedGoesOn) {
  client = Connect(Options());
  ASSERT_NE(client, nullptr);
  for (const bool published : {false, true}) {
    job.Hold();
    parameters = seed;
    auto pending = std::async(std::launch::async, [&] {
      return client->SeedOrPull(Write(&parameters));
    });
    job.AwaitCommit(published ? 4 : 1);
    job.End(kReason);
    if (published) job.CloseSilently();
    job.Lose(0);
    job.Release();
    job.Open();
    const absl::Status status = pending.get();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(client->version(), 0u);
    EXPECT_EQ(job.parameters(), seed);
    ASSERT_TRUE(Step(0.5f).ok());
    EXPECT_EQ(parameters, After({0.5f}));
    NextEpoch([&] { job.LoseAll(); });
    EXPECT_FALSE(Step(0.5f).ok());
  }
}

// The shard that lives has the row no more: it forgot it with the others.
TEST_F(RecoveryTest, ASeedThatWasForgottenIsPushedAgainToAllShards) {
  client = Connect(Options());
  ASSERT_NE(client, nullptr);
  parameters = seed;
  job.Hold();
  auto pending = std::async(std::launch::async, [&] {
    return client->SeedOrPull(Write(&parameters));
  });
  job.AwaitCommit(1);
  const int kept = job.frames(0), lost = job.frames(1);
  job.End(kReason);
  job.Lose(1);
  job.Release();
  job.Open();
  const absl::Status status = pending.get();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(job.frames(0), 2 * kept);
  EXPECT_EQ(job.frames(1), 2 * lost);
  EXPECT_EQ(job.parameters(), seed);
}

TEST_F(RecoveryTest, WhatSomebodyElseSeededCanBePulled) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  NextEpoch([&] { job.LoseAll(); });
  heard.Await(ClientEvent::Kind::kRecovered);
  job.SeedByAnother();
  const auto version = client->PullLatest(Write(&parameters));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 0u);
  EXPECT_EQ(parameters, job.parameters());
  ExpectIncluded(Step(0.25f));
}

// The lease ran out, as in a process that was frozen: another worker might have
// taken part in its place, so the row is given up.
TEST_F(RecoveryTest, ANewSessionOwesNothing) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const uint64_t session = client->session();
  job.Hold();
  auto pending = BeginStep(0.25f);
  job.AwaitCommit(3);
  job.Expire();
  job.Release();
  const auto outcome = pending.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->included);
  EXPECT_EQ(outcome->kind, RoundOutcome::Kind::kApplied);
  EXPECT_THAT(outcome->message, HasSubstr("the lease had run out"));
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_NE(client->session(), session);
  EXPECT_EQ(parameters, After({0.5f}));
  ExpectIncluded(Step(0.125f));
  EXPECT_THAT(job.used(),
              ElementsAre(Used{0, session, 0}, Used{1, client->session(), 0}));
}

// What it had committed before counts, and is told about.
TEST_F(RecoveryTest, ANewSessionLearnsWhatBecameOfTheFormersRow) {
  Begin();
  const uint64_t session = client->session();
  const auto outcome = StepThrough(0.25f, [&] {
    job.CloseSilently();
    job.Expire();
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_NE(client->session(), session);
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(parameters, After({0.25f}));
}

// Others are in the open round: the new session's first is the next one.
TEST_F(RecoveryTest, ARoundBeforeTheSessionsFirstIsMissed) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.AdmitLater();
  job.Expire();
  heard.Await(ClientEvent::Kind::kRecovered);
  ASSERT_EQ(*client->PullLatest(Write(&parameters)), 1u);
  auto pending = BeginStep(0.25f);
  job.CloseWithout();
  const auto outcome = pending.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->included);
  EXPECT_THAT(outcome->message, HasSubstr("takes part from round 2"));
  EXPECT_EQ(outcome->version, 2u);
  EXPECT_EQ(client->version(), 2u);
  EXPECT_EQ(parameters, After({0.5f}));
  ExpectIncluded(Step(0.125f));
  EXPECT_EQ(parameters, After({0.5f, 0.125f}));
}

// Its lease ran out while the job went back: others are in the open round.
TEST_F(RecoveryTest, ARewindOfAnotherSessionGivesTheVersionOfItsFirstRound) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  ASSERT_TRUE(Step(0.25f).ok());
  job.End(kReason);
  job.Expire();
  job.Rewind(0);
  job.AdmitLater();
  job.Open();
  heard.Await(ClientEvent::Kind::kRecovered);
  const absl::Status refused = client->Push(Read(seed));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("to version 0; Pull version 1"));
  auto pending = BeginStep(0.125f);
  job.CloseWithout();
  const auto outcome = pending.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, RoundOutcome::Kind::kRewound);
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(parameters, seed);
  ExpectIncluded(Step(0.125f));
  EXPECT_EQ(parameters, After({0.125f}));
}

TEST_F(RecoveryTest, BeforeItsFirstRoundPushAndCommitNameIt) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.AdmitLater();
  job.Expire();
  heard.Await(ClientEvent::Kind::kRecovered);
  ASSERT_EQ(*client->PullLatest(Write(&parameters)), 1u);
  for (const absl::Status& status :
       {client->Commit({}).status(), client->Push(Read(seed))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("takes part from round 2; Pull "
                                           "version 2"));
  }
}

TEST_F(RecoveryTest, AfterTheLeaseRanOutPushAndCommitSaySo) {
  Begin();
  ASSERT_TRUE(client->Push(Read(Values(manifest, 0.5f))).ok());
  job.Expire();
  heard.Await(ClientEvent::Kind::kRecovered);
  for (const absl::Status& status :
       {client->Commit({}).status(), client->Push(Read(seed))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("lease had run out"),
                                       HasSubstr("Pull version 0")));
  }
  ASSERT_TRUE(client->Pull(0, Write(&parameters)).ok());
  EXPECT_TRUE(client->Push(Read(seed)).ok());
}

TEST_F(RecoveryTest, WhoseRankIsTakenDoesNotComeBack) {
  Begin();
  job.Refuse(grpc::Status(grpc::StatusCode::ABORTED, "superseded: rank 0"));
  const absl::Status status = StepThrough(0.25f, [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status), HasSubstr("superseded: rank 0"));
  EXPECT_EQ(client->Push(Read(seed)), status);
  EXPECT_EQ(client->Pull(0, Write(&parameters)), status);
}

TEST_F(RecoveryTest, AFinishedJobStaysFinished) {
  Begin();
  const auto outcome = StepThrough(0.25f, [&] {
    job.Finish();
    job.CloseSilently();
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_TRUE(outcome->finished);
  EXPECT_TRUE(client->finished());
  EXPECT_EQ(parameters, After({0.25f}));
  // Nobody keeps a lease any more: the call that needs it comes back itself.
  NextEpoch();
  parameters = seed;
  EXPECT_TRUE(client->Pull(1, Write(&parameters)).ok());
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(RecoveryTest, ObserversComeBack) {
  Begin();
  const auto observer = Observer(absl::Milliseconds(200));
  Tensors values = Values(manifest, 0);
  ASSERT_TRUE(observer->PullLatest(Write(&values)).ok());
  ASSERT_TRUE(StepThrough(0.25f, [&] { job.Move(1); }).ok());
  const auto version = observer->PullLatest(Write(&values));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 1u);
  EXPECT_EQ(values, After({0.25f}));

  // In the midst of a pull that waits.
  auto pending = std::async(std::launch::async,
                            [&] { return observer->Pull(2, Write(&values)); });
  ASSERT_TRUE(StepThrough(0.5f, [] {}).ok());
  const absl::Status status = pending.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(values, After({0.25f, 0.5f}));
}

// It came back before the job had parameters again, and cannot seed it.
TEST_F(RecoveryTest, AnObserverPullsWhatWasSeededAfterItCameBack) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const auto observer = Observer(absl::Milliseconds(200));
  Tensors values = Values(manifest, 0);
  ASSERT_TRUE(observer->PullLatest(Write(&values)).ok());
  NextEpoch([&] { job.LoseAll(); });
  EXPECT_THAT(Message(observer->LatestVersion().status()),
              HasSubstr("no parameters yet"));
  // It waits for them.
  auto pending = std::async(std::launch::async,
                            [&] { return observer->Pull(0, Write(&values)); });
  heard.Await(ClientEvent::Kind::kRecovered);
  parameters = seed;
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  const absl::Status status = pending.get();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(values, seed);
}

// --- Every wait ends ---------------------------------------------------------

TEST_F(RecoveryTest, TheWindowEnds) {
  ClientOptions options = Options();
  options.recovery_window = absl::Milliseconds(300);
  Begin(options);
  job.End(kReason);
  const absl::Status status = Step(0.5f).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr(kReason), HasSubstr("recovery_window, 300ms")));
  // The lease's thread has a window of its own, which may end a moment after
  // the call's. Once it has, calls fail at once; before, each waits for 300 ms.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Step(0.5f).status().code(), absl::StatusCode::kUnavailable);
  }
  // The client is over now, also when the job comes back.
  job.Open();
  EXPECT_EQ(client->Commit({}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RecoveryTest, ACoordinatorThatDoesNotAnswerEndsItToo) {
  ClientOptions options = Options();
  options.recovery_window = absl::Milliseconds(300);
  Begin(options);
  job.Silence();
  NextEpoch();
  // The call's own window may end a moment before that of the lease's thread,
  // which asks, and whose reason all calls get from then on.
  absl::Status status;
  do {
    status = Step(0.5f).status();
  } while (Message(status).find("Join") == std::string::npos);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("shard 0 (" + job.coordinator() + "): Join"),
                    HasSubstr("recovery_window, 300ms")));
}

TEST_F(RecoveryTest, AnObserversWindowEnds) {
  Begin();
  ClientOptions options;
  options.coordinator = job.coordinator();
  options.observer = true;
  options.reconnect_window = absl::Milliseconds(50);
  options.recovery_window = absl::Milliseconds(200);
  const auto observer = Connect(options);
  job.End(kReason);
  const absl::Status status = observer->LatestVersion().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr(kReason), HasSubstr("recovery_window, 200ms")));
  job.Open();  // it has nothing to lose, and may ask again, more than once
  const absl::Time late = absl::Now() + absl::Minutes(1);
  while (!observer->LatestVersion().ok()) ASSERT_LT(absl::Now(), late);
}

TEST_F(RecoveryTest, ARoundsLimitHoldsMeanwhile) {
  ClientOptions options = Options();
  // Time enough to hear the reason on a busy machine.
  options.round_timeout = absl::Seconds(3);
  Begin(options);
  ASSERT_TRUE(client->Push(Read(seed)).ok());
  job.End(kReason);
  const absl::Status status = client->Commit({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr(kReason));
  job.Open();  // only the call was over
  heard.Await(ClientEvent::Kind::kRecovered);
  EXPECT_TRUE(client->Commit({}).ok());
}

TEST_F(RecoveryTest, LeaveEndsIt) {
  Begin();
  job.End(kReason);
  auto pending = BeginStep(0.5f);
  heard.Await(ClientEvent::Kind::kRecovering);
  EXPECT_TRUE(client->Leave().ok());
  EXPECT_EQ(pending.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client->Push(Read(seed)).code(), absl::StatusCode::kCancelled);
  job.Open();
}

TEST_F(RecoveryTest, WithoutAWindowAnEpochIsTheEnd) {
  ClientOptions options = Options();
  options.recovery_window = absl::ZeroDuration();
  Begin(options);
  // Heard before the next epoch begins, so that nothing is told of a stale one.
  const auto lost = [&] { heard.Await(ClientEvent::Kind::kShardLost); };
  const absl::Status status = StepThrough(0.25f, lost).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(kReason));
  EXPECT_EQ(job.joins().size(), 1u);
}

}  // namespace
}  // namespace agg
