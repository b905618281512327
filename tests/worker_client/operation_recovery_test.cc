// Operations that are under way when the epoch ends (P26, P27), and rows that
// are dropped half way (P5).
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/recovery_fixture.h"
#include "worker_client/operation.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

using Kind = RoundOutcome::Kind;
using Used = EpochJob::Used;

class OperationRecoveryTest : public RecoveryTest {
 protected:
  TensorView Named(const Tensors& tensors, size_t i) const {
    return TensorView(manifest.tensors[i].name, tensors[i]);
  }
  const Tensors gradient = Values(manifest, 0.25f);
  const Tensors dropped = Values(manifest, 7);
};

TEST_F(OperationRecoveryTest, AfterACancelAnotherGradientHasAHigherAttempt) {
  Begin();
  const int before = job.frames(0) + job.frames(1);
  Operation row = client->StartPush({Named(dropped, 0)});
  job.AwaitFrame(0, job.frames(0) + 1);
  row.Cancel();
  EXPECT_TRUE(absl::IsCancelled(row.Wait()));
  for (const size_t i : {3, 4, 1}) client->StartPush({Named(gradient, i)});
  RoundOperation round = client->StartRound(
      {Named(gradient, 2), Named(gradient, 0)}, {}, Write(&parameters));
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_GT(job.frames(0) + job.frames(1), before);
  EXPECT_EQ(parameters, After({0.25f}));
  EXPECT_THAT(job.used(), ElementsAre(Used{0, client->session(), 1}));
}

TEST_F(OperationRecoveryTest, ARowThatGrowsGoesOnInTheNextEpoch) {
  Begin();
  const int before = job.frames(1);
  Operation row = client->StartPush({Named(gradient, 0), Named(gradient, 3)});
  job.AwaitFrame(1, before + 1);
  job.End(kReason);
  job.Lose(1);
  client->StartPush({Named(gradient, 2)});
  job.Open();
  heard.Await(ClientEvent::Kind::kRecovered);
  RoundOperation round =
      client->StartRound({Named(gradient, 4)}, {}, Write(&parameters));
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(row.Status().ok()) << row.Status();
  EXPECT_EQ(parameters, After({0.25f}));
  EXPECT_THAT(job.used(), ElementsAre(Used{0, client->session(), 0}));
}

TEST_F(OperationRecoveryTest, ARoundOperationPushesAgainWhatAShardHasLost) {
  Begin();
  job.Hold();
  client->StartPush(Read(gradient));
  RoundOperation round = client->StartRound({}, {}, Write(&parameters));
  job.AwaitCommit(2);
  job.End(kReason);
  job.Lose(0);
  job.Release();
  job.Open();
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(parameters, After({0.25f}));
}

// The row has not been sent: it goes to the next epoch.
TEST_F(OperationRecoveryTest, AnEpochMayEndWhileADeviceIsWaitedFor) {
  Begin();
  const DeviceTensors there(gradient);
  fake_cuda::Hang(0, true);
  fake_cuda::Launch(0, [] {});
  const int64_t asked = fake_cuda::NumCalls("cuEventQuery");
  RoundOperation round =
      client->StartRound(there.Read(), {}, Write(&parameters));
  while (fake_cuda::NumCalls("cuEventQuery") == asked && !round.Done()) {
    std::this_thread::yield();
  }
  NextEpoch();
  heard.Await(ClientEvent::Kind::kRecovered);
  EXPECT_FALSE(round.Done()) << round.Status();
  fake_cuda::Hang(0, false);
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(OperationRecoveryTest, ARoundOperationSaysThatTheJobHasGoneBack) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  client->StartPush({Named(gradient, 0)});
  NextEpoch([&] { job.Rewind(0); });
  heard.Await(ClientEvent::Kind::kRewound);
  RoundOperation round = client->StartRound(
      {Named(gradient, 2), Named(gradient, 4)}, {}, Write(&parameters));
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(parameters, seed);
  // The row of version 1 is no row of version 0.
  const auto next = Step(0.25f);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(OperationRecoveryTest, WhatWaitsForTheJobCanBeCancelled) {
  Begin();
  job.End(kReason);
  heard.Await(ClientEvent::Kind::kRecovering);
  RoundOperation round =
      client->StartRound(Read(gradient), {}, Write(&parameters));
  PullOperation pull = client->StartPull(0, Write(&parameters));
  round.Cancel();
  pull.Cancel();
  EXPECT_TRUE(absl::IsCancelled(round.Wait())) << round.Status();
  EXPECT_TRUE(absl::IsCancelled(pull.Wait())) << pull.Status();
  job.Open();
  ASSERT_TRUE(Step(0.5f).ok());
  EXPECT_EQ(parameters, After({0.5f}));
}

// Rounds of a pipelined job (P43) as the client makes them: what it asks for
// with its first frames, and what becomes of slices whose version is given up.
// Real servers: tests/e2e/pipelined_test.cc.

// "big" is whole before the second frame to shard 0, which has "w".
class PipelinedTripTest : public RecoveryTest {
 protected:
  PipelinedTripTest() { job.Pipeline(); }

  // Begins a round of which shard 0 reads the first frame alone, and waits for
  // "big" of the version that it makes.
  RoundOperation BeginRound() {
    job.StallPushesAfter(0, 1);
    RoundOperation round =
        client->StartRound(Read(gradient), {}, Write(&parameters));
    const absl::Status there =
        round.WaitForTensor("big", absl::Now() + absl::Minutes(1));
    EXPECT_TRUE(there.ok()) << there;
    EXPECT_EQ(parameters[0], After({0.25f})[0]);
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        round.WaitForTensor("w", absl::InfinitePast())));
    EXPECT_FALSE(round.Done());
    return round;
  }

  const Tensors gradient = Values(manifest, 0.25f);
};

TEST_F(PipelinedTripTest, TheFirstFrameToEachShardAsksForAll) {
  Begin();
  const int pulls = job.pulls();
  for (int round = 0; round < 2; ++round) {
    const auto outcome = Step(0.5f);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
    EXPECT_EQ(outcome->kind, Kind::kApplied);
  }
  EXPECT_EQ(parameters, After({0.5f, 0.5f}));
  EXPECT_EQ(job.pulls(), pulls);
  for (const int shard : {0, 1}) {
    const std::vector<v1::PushFrame> frames = job.trips(shard);
    ASSERT_EQ(frames.size(), 2u * 2u);
    for (size_t i = 0; i < frames.size(); ++i) {
      const bool first = i % 2 == 0;
      EXPECT_TRUE(frames[i].meta().report());
      EXPECT_EQ(frames[i].has_pull(), first);
      EXPECT_EQ(frames[i].has_commit(), first && shard == 0);
      EXPECT_EQ(frames[i].commit().row_crc32c_size(), 0);
      if (!first) continue;
      EXPECT_EQ(frames[i].pull().version(), i / 2 + 1);
    }
  }
}

TEST_F(PipelinedTripTest, SlicesAreThereBeforeTheRowIsSent) {
  Begin();
  RoundOperation round = BeginRound();
  job.StallPushes(0, false);
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kApplied);
  EXPECT_EQ(parameters, After({0.25f}));
}

TEST_F(PipelinedTripTest, ARowOfALostShardGoesInOneTripAgain) {
  Begin();
  const int pulls = job.pulls();
  RoundOperation round = BeginRound();
  job.End(kReason);
  job.Lose(0);
  job.StallPushes(0, false);
  job.Open();
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(parameters, After({0.25f}));
  // What "big" was read from was given up, although it is the same now.
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(job.trips(0).size(), 1u + 2u);  // what it lost, and all of it
  EXPECT_EQ(job.pulls(), pulls);
}

TEST_F(PipelinedTripTest, SlicesOfAVersionThatWasGivenUpAreWrittenAgain) {
  Begin();
  RoundOperation round = BeginRound();
  job.End(kReason);
  job.CloseWithout();  // another version 1, of other rows
  job.StallPushes(0, false);
  job.Open();
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->included);
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(parameters, seed);
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  const auto next = Step(0.5f);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(parameters, After({0.5f}));
}

TEST_F(PipelinedTripTest, ACancelledRoundEndsInTheMiddle) {
  Begin();
  RoundOperation round = BeginRound();
  round.Cancel();
  EXPECT_TRUE(absl::IsCancelled(round.Wait())) << round.Status();
  job.StallPushes(0, false);
}

// The trip itself may wait for others without a limit.
TEST_F(PipelinedTripTest, ADeviceThatHangsEndsIt) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ClientOptions options = Options();
  options.transfer_timeout = absl::Milliseconds(20);
  client = nullptr;
  client = Connect(options);
  ASSERT_NE(client, nullptr);
  const DeviceTensors there(gradient);
  fake_cuda::Hang(0, true);
  fake_cuda::Launch(0, [] {});
  const auto outcome = client->PushPull(there.Read(), {}, Write(&parameters));
  fake_cuda::Hang(0, false);
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.status())) << outcome.status();
  EXPECT_EQ(parameters, seed);
}

}  // namespace
}  // namespace agg
