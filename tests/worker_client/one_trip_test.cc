// Rounds of one trip (P41) as the client makes them, and what it does when they
// fail. Real servers: tests/e2e/client_trip_test.cc.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

FakeJob::Options TwoShards() {
  FakeJob::Options options;
  options.num_shards = 2;
  return options;
}

class OneTripTest : public ::testing::Test {
 protected:
  void Begin(const Manifest& tensors) {
    client.reset();
    manifest = tensors;
    job = std::make_unique<FakeJob>(manifest, options);
    ClientOptions client_options = OptionsFor(*job, manifest);
    client_options.transfer_timeout = absl::Seconds(20);
    client = Connect(client_options);
    ASSERT_NE(client, nullptr);
    gradient = Values(manifest, 0.25f);
    parameters = expected = Values(manifest, 1);
    ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  }
  absl::StatusOr<RoundOutcome> Step(const PushInfo& info = {}) {
    return client->PushPull(Read(gradient), info, Write(&parameters));
  }
  // A round that must be as every other one.
  void CheckStep() {
    const uint64_t version = client->version();
    const auto outcome = Step();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
    EXPECT_EQ(outcome->round, version);
    EXPECT_EQ(outcome->version, version + 1);
    EXPECT_EQ(client->version(), version + 1);
    for (size_t t = 0; t < expected.size(); ++t) {
      for (size_t i = 0; i < expected[t].size(); ++i) {
        expected[t][i] -= gradient[t][i];
      }
    }
    EXPECT_EQ(parameters, expected);
  }
  int trips() const { return job->trips(0) + job->trips(1); }
  int frames() const { return job->frames(0) + job->frames(1); }
  int pulls() const { return job->pulls(0) + job->pulls(1); }

  FakeJob::Options options = TwoShards();
  Manifest manifest;
  std::unique_ptr<FakeJob> job;
  std::unique_ptr<AggClient> client;
  Tensors gradient, parameters, expected;
};

TEST_F(OneTripTest, ASmallRoundIsOneFrameToEachShard) {
  Begin(TwoTensors());
  const int seeded = frames();
  for (int round = 0; round < 3; ++round) CheckStep();
  EXPECT_EQ(trips(), 3 * 2);
  EXPECT_EQ(frames(), seeded + 3 * 2);
  EXPECT_EQ(pulls(), 0);
}

TEST_F(OneTripTest, TheCommitSaysWhatAnOrdinaryOneSays) {
  FakeJob other(TwoTensors(), TwoShards());
  auto ordinary = Connect(OptionsFor(other, TwoTensors()));
  Tensors known = Values(TwoTensors(), 1);
  ASSERT_TRUE(ordinary->SeedOrPull(Write(&known)).ok());
  Begin(TwoTensors());
  PushInfo info;
  info.examples = 17;
  info.loss = 0.5;
  info.loss_scale = 8;
  info.parameters_digest = 0xfedcba98;
  info.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  ASSERT_TRUE(ordinary->Push(Read(gradient)).ok());
  ASSERT_TRUE(ordinary->Commit(info).ok());
  ASSERT_TRUE(ordinary->Pull(1, Write(&known)).ok());
  const auto outcome = Step(info);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->loss, 0.5);
  EXPECT_EQ(parameters, known);
  v1::CommitRequest commit = job->commit();
  EXPECT_EQ(commit.traceparent(), info.traceparent);
  commit.clear_traceparent();
  EXPECT_EQ(commit.SerializeAsString(), other.commit().SerializeAsString());
  EXPECT_EQ(commit.row_crc32c_size(), 2);
  EXPECT_EQ(commit.parameters_digest(), 0xfedcba98);
}

TEST_F(OneTripTest, LargeRowsGoInOrdinaryCalls) {
  Begin(MixedManifest());
  CheckStep();
  EXPECT_EQ(trips(), 0);
  EXPECT_GT(pulls(), 0);
}

TEST_F(OneTripTest, WhenAStreamBreaksTheRoundGoesOnInOrdinaryCalls) {
  for (const int shard : {0, 1}) {
    Begin(TwoTensors());
    const int first = job->frames(shard);
    job->set_push_fault(shard, [first](int count) {
      return count == first ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")
                            : grpc::Status::OK;
    });
    CheckStep();
    EXPECT_EQ(job->commit().attempt(), 0u);
    // And in one trip again.
    const int before = trips(), pulled = pulls();
    CheckStep();
    EXPECT_EQ(trips(), before + 2);
    EXPECT_EQ(pulls(), pulled);
  }
}

TEST_F(OneTripTest, ARowThatArrivesDamagedGoesInOrdinaryCalls) {
  for (const int shard : {0, 1}) {
    Begin(TwoTensors());
    const int first = job->frames(shard);
    job->set_push_fault(shard, [first](int count) {
      return count == first ? grpc::Status(grpc::StatusCode::DATA_LOSS, "crc")
                            : grpc::Status::OK;
    });
    CheckStep();
    // Not asked for a trip again, whose answer nobody would read.
    EXPECT_EQ(job->trips(shard), 0);
    EXPECT_EQ(job->commit().attempt(), 0u);
    const int before = trips();
    CheckStep();
    EXPECT_EQ(trips(), before + 2);
  }
}

TEST_F(OneTripTest, AVersionThatArrivesDamagedIsPulled) {
  options.num_shards = 1;  // with both slices: the second one is not damaged
  Begin(TwoTensors());
  job->set_trip_corruption(0, [](int count) { return count == 0; });
  CheckStep();
  EXPECT_EQ(job->trips(0), 1);
  EXPECT_EQ(job->pulls(0), 1);
  CheckStep();
  EXPECT_EQ(job->pulls(0), 1);
}

TEST_F(OneTripTest, AVersionThatDoesNotComeIsPulled) {
  Begin(TwoTensors());
  job->set_trip_fault(1, [](int count) {
    return count == 0 ? grpc::Status(grpc::StatusCode::ABORTED, "replaced")
                      : grpc::Status::OK;
  });
  CheckStep();
  EXPECT_GT(pulls(), 0);
  const int pulled = pulls();
  CheckStep();
  EXPECT_EQ(pulls(), pulled);
}

TEST_F(OneTripTest, WhatCommitAnswersIsThePushPullsAnswer) {
  Begin(TwoTensors());
  job->FailCommits(
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "examples is -1"));
  const auto outcome = Step();
  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()), HasSubstr("examples is -1"));
}

TEST_F(OneTripTest, ARoundOfOneTripCanBeCancelled) {
  Begin(TwoTensors());
  job->HoldCommits();
  RoundOperation round =
      client->StartRound(Read(gradient), {}, Write(&parameters));
  job->AwaitCommits(2);
  round.Cancel();
  EXPECT_TRUE(absl::IsCancelled(round.Wait())) << round.Status();
}

}  // namespace
}  // namespace agg
