// Operations that are under way when the epoch ends (P26, P27), and rows that
// are dropped half way (P5).
#include <cstdint>
#include <thread>

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
  job.End(kReason);
  job.Open();
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
  job.End(kReason);
  job.Rewind(0);
  job.Open();
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

}  // namespace
}  // namespace agg
