// What the client makes of failures, against a job in this process.
#include <future>
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using ClientFailuresTest = SeededTest;

// A stream that breaks in the middle of a row is opened again and gets the
// complete row; the other shard is not disturbed.
TEST_F(ClientFailuresTest, ABrokenPushIsPushedAgain) {
  manifest = MixedManifest();
  of_job.num_shards = 2;
  Begin();
  const int before = job->frames(0), other = job->frames(1);
  job->set_push_fault(0, [before](int count) {
    return count == before + 1
               ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")
               : grpc::Status::OK;
  });
  const auto seed = parameters, gradient = Values(manifest, 0.5f);
  auto outcome = client->PushPull(Read(gradient), {}, Write(&parameters));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (size_t t = 0; t < seed.size(); ++t) {
    for (size_t i = 0; i < seed[t].size(); ++i) {
      ASSERT_EQ(parameters[t][i], seed[t][i] - gradient[t][i]);
    }
  }
  EXPECT_EQ(job->frames(1), 2 * other);
  EXPECT_GT(job->frames(0), 2 * before);
}

TEST_F(ClientFailuresTest, DamagedPushesAreRepeatedAFewTimesThenNamed) {
  of_job.num_shards = 2;
  Begin();
  job->set_push_fault(1, [](int) {
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "slice 1 differs");
  });
  const absl::Status status = client->Push(Read(Values(TwoTensors(), 1)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("shard 1 (" + job->address(1) + ")"),
                    HasSubstr("slice 1 differs")));
  EXPECT_EQ(job->frames(1), 1 + 4);
}

TEST_F(ClientFailuresTest, RefusalsAreNotRepeated) {
  Begin();
  job->set_push_fault(0, [](int) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "round is 7");
  });
  const absl::Status status = client->Push(Read(Values(TwoTensors(), 1)));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("round is 7"));
  EXPECT_EQ(job->frames(0), 2);
  job->set_push_fault(0, nullptr);  // the next push opens a new stream
  EXPECT_TRUE(client->Push(Read(Values(TwoTensors(), 1))).ok());
}

TEST_F(ClientFailuresTest, DamagedPullsAreRepeatedAFewTimesThenNamed) {
  of_job.num_shards = 2;
  Begin();
  const auto seed = parameters;
  job->set_pull_corruption(1, [](int count) { return count < 2; });
  parameters = Values(TwoTensors(), 0);
  const absl::Status pulled = client->Pull(0, Write(&parameters));
  EXPECT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(parameters, seed);
  EXPECT_EQ(job->pulls(0), 1);
  EXPECT_EQ(job->pulls(1), 3);
  job->set_pull_corruption(1, [](int) { return true; });
  const absl::Status status = client->Pull(0, Write(&parameters));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("shard 1 (" + job->address(1) + ")"));
}

TEST_F(ClientFailuresTest, PullLatestBeginsAnewWhenAVersionIsGone) {
  of_job.num_shards = 2;
  Begin();
  job->set_pull_fault(1, [](int count) {
    return count == 0 ? grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "gone")
                      : grpc::Status::OK;
  });
  parameters = Values(TwoTensors(), 0);
  const auto version = client->PullLatest(Write(&parameters));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 0);
  EXPECT_EQ(job->pulls(1), 2);
  EXPECT_EQ(parameters, Values(TwoTensors(), 1));
}

TEST_F(ClientFailuresTest, ARowThatIsMuchTooLateGetsTheNewestVersion) {
  Begin();
  const auto seed = parameters;
  job->FailCommits(
      grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "no longer kept"));
  parameters = Values(TwoTensors(), 0);
  const auto outcome =
      client->PushPull(Read(Values(TwoTensors(), 1)), {}, Write(&parameters));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->included);
  EXPECT_EQ(outcome->version, 0);
  EXPECT_EQ(parameters, seed);
}

struct Ending {
  v1::JobEvent::Kind kind;
  absl::StatusCode code;
  std::string message;
};

class EndingTest : public SeededTest,
                   public ::testing::WithParamInterface<Ending> {};

TEST_P(EndingTest, EndsThePendingCallAndAllLaterOnes) {
  options.recovery_window = absl::ZeroDuration();
  Begin();
  ASSERT_TRUE(client->Push(Read(parameters)).ok());
  job->HoldCommits();
  auto pending = std::async(std::launch::async,
                            [&] { return client->Commit({}).status(); });
  job->AwaitCommits(1);
  job->Send(GetParam().kind, "shard 1 (10.0.0.1:1) is lost");
  const absl::Status status = pending.get();
  EXPECT_EQ(status.code(), GetParam().code);
  EXPECT_THAT(Message(status), HasSubstr(GetParam().message));
  EXPECT_EQ(client->Push(Read(parameters)), status);
  EXPECT_EQ(client->Pull(0, Write(&parameters)), status);
  EXPECT_EQ(client->Commit({}).status(), status);
  EXPECT_EQ(client->Wait(1).status(), status);
}

INSTANTIATE_TEST_SUITE_P(
    All, EndingTest,
    ::testing::Values(Ending{v1::JobEvent::SHARD_LOST,
                             absl::StatusCode::kUnavailable,
                             "shard 1 (10.0.0.1:1) is lost"},
                      Ending{v1::JobEvent::SUPERSEDED,
                             absl::StatusCode::kAborted, "superseded"},
                      Ending{v1::JobEvent::EVICTED, absl::StatusCode::kAborted,
                             "an operator ended this session"},
                      Ending{v1::JobEvent::EXPIRED, absl::StatusCode::kNotFound,
                             "Connect again"}));

TEST_F(ClientFailuresTest, AShardsLossEndsAPushThatWaits) {
  const Manifest manifest = {{Spec("big", {20 * kMaxSliceElements})}};
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(manifest, job_options);
  ClientOptions options = OptionsFor(job, manifest);
  options.recovery_window = absl::ZeroDuration();
  auto client = Connect(options);
  auto parameters = Values(manifest, 1);
  job.StallPushes(1);
  auto pending = std::async(std::launch::async, [&] {
    // Freed as soon as the push returns: nothing may read it after that.
    auto row =
        std::make_unique<std::vector<std::vector<float>>>(Values(manifest, 1));
    return client->Seed(Read(*row)).status();
  });
  job.Send(v1::JobEvent::SHARD_LOST, "shard 1 is lost");
  const absl::Status status = pending.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientFailuresTest, TheNextInLineSeeds) {
  FakeJob::Options job_options;
  job_options.seed_role = false;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  EXPECT_FALSE(client->seed_role());
  auto parameters = Values(TwoTensors(), 1);
  auto pending = std::async(std::launch::async, [&] {
    return client->SeedOrPull(Write(&parameters));
  });
  job.AwaitWaitingPull();
  job.Send(v1::JobEvent::SEED_ROLE);
  const absl::Status status = pending.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(client->seed_role());
  EXPECT_EQ(job.commit().kind(), v1::SEED);
}

TEST_F(ClientFailuresTest, AFinishedJobCanStillBePulled) {
  FakeJob job(TwoTensors(), {});
  std::promise<ClientEvent> heard;
  ClientOptions options = OptionsFor(job, TwoTensors());
  options.on_event = [&](const ClientEvent& event) { heard.set_value(event); };
  auto client = Connect(options);
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.Send(v1::JobEvent::FINISHED);
  EXPECT_EQ(heard.get_future().get().kind, ClientEvent::Kind::kFinished);
  EXPECT_TRUE(client->finished());
  EXPECT_TRUE(client->Pull(0, Write(&parameters)).ok());
}

TEST_F(ClientFailuresTest, ADeadCoordinatorIsNamed) {
  of_job.num_shards = 2;
  options.reconnect_window = absl::Milliseconds(100);
  options.recovery_window = absl::ZeroDuration();
  Begin();
  ASSERT_TRUE(client->Push(Read(parameters)).ok());
  job->HoldCommits();
  auto pending = std::async(std::launch::async,
                            [&] { return client->Commit({}).status(); });
  job->AwaitCommits(1);
  job->Stop(0);
  const absl::Status status = pending.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status),
              HasSubstr("shard 0 (" + job->coordinator() + ")"));
}

TEST_F(ClientFailuresTest, ADeadShardIsNamed) {
  of_job.num_shards = 2;
  options.reconnect_window = absl::Milliseconds(100);
  options.recovery_window = absl::ZeroDuration();
  Begin();
  job->Stop(1);
  const absl::Status push = client->Push(Read(parameters));
  EXPECT_EQ(push.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(push), HasSubstr("shard 1 (" + job->address(1) + ")"));
  const absl::Status pull = client->Pull(0, Write(&parameters));
  EXPECT_EQ(pull.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(pull), HasSubstr("shard 1 (" + job->address(1) + ")"));
}

// Stopped on purpose: the worker heard of it, and says so at once instead of
// asking for a server that runs, also with a long reconnect_window.
TEST_F(ClientFailuresTest, AnAnnouncedShutdownIsNoConnectionRefused) {
  FakeJob job(TwoTensors(), {});
  std::promise<void> heard;
  ClientOptions options = OptionsFor(job, TwoTensors());
  options.reconnect_window = absl::Hours(1);
  options.recovery_window = absl::ZeroDuration();
  options.on_event = [&](const ClientEvent& event) {
    if (event.kind == ClientEvent::Kind::kDraining) heard.set_value();
  };
  auto client = Connect(options);
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.Send(v1::JobEvent::DRAINING, "the coordinator is shutting down");
  heard.get_future().wait();
  job.Stop(0);
  for (const absl::Status& status :
       {client->Push(Read(parameters)), client->Pull(0, Write(&parameters)),
        client->Commit({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("shard 0 (" + job.coordinator() +
                                ") has shut down, as it had announced"),
                      Not(HasSubstr("refused"))));
  }
}

TEST_F(ClientFailuresTest, WhoIsWaitedForIsHeard) {
  FakeJob job(TwoTensors(), {});
  std::promise<ClientEvent> heard;
  ClientOptions options = OptionsFor(job, TwoTensors());
  options.on_event = [&](const ClientEvent& event) { heard.set_value(event); };
  auto client = Connect(options);
  job.Send(v1::JobEvent::WAITING, "1 of 2 workers have not joined: rank 1");
  const ClientEvent event = heard.get_future().get();
  EXPECT_EQ(event.kind, ClientEvent::Kind::kWaiting);
  EXPECT_EQ(ToString(event), "waiting: 1 of 2 workers have not joined: rank 1");
}

TEST_F(ClientFailuresTest, AWorkerWaitsForAServerThatStartsLater) {
  int port = 0;
  {
    FakeJob former(TwoTensors(), {});
    const std::string address = former.coordinator();
    port = std::stoi(address.substr(address.rfind(':') + 1));
  }
  std::promise<ClientEvent> heard;
  bool said = false;
  ClientOptions options;
  options.coordinator = "127.0.0.1:" + std::to_string(port);
  options.manifest = TwoTensors();
  options.on_event = [&](const ClientEvent& event) {
    if (!said) heard.set_value(event);
    said = true;
  };
  auto pending = std::async(std::launch::async,
                            [&] { return AggClient::Connect(options); });
  const ClientEvent event = heard.get_future().get();
  EXPECT_EQ(event.kind, ClientEvent::Kind::kWaiting);
  EXPECT_THAT(event.message, AllOf(HasSubstr("shard 0 (" + options.coordinator),
                                   HasSubstr("Connection refused")));
  FakeJob::Options job_options;
  job_options.port = port;
  FakeJob job(TwoTensors(), job_options);
  const auto client = pending.get();
  EXPECT_TRUE(client.ok()) << client.status();
}

TEST_F(ClientFailuresTest, AVersionThatNeverComesIsNotWaitedFor) {
  Begin();
  ClientOptions options;
  options.coordinator = job->coordinator();
  options.observer = true;
  auto observer = Connect(options);
  EXPECT_FALSE(observer->finished());
  job->Finish();
  ASSERT_TRUE(observer->LatestVersion().ok());
  EXPECT_TRUE(observer->finished());
  for (AggClient* each : {client.get(), observer.get()}) {
    const absl::Status status = each->Pull(1, Write(&parameters));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("finished"));
  }
  EXPECT_TRUE(observer->Pull(0, Write(&parameters)).ok());
  EXPECT_EQ(job->pulls(0), 1);
}

TEST_F(ClientFailuresTest, EveryPullHasALimit) {
  FakeJob::Options job_options;
  job_options.seed_role = false;
  FakeJob job(TwoTensors(), job_options);
  ClientOptions options = OptionsFor(job, TwoTensors());
  options.round_timeout = absl::Milliseconds(20);
  options.transfer_timeout = absl::Milliseconds(20);
  auto client = Connect(options);
  auto parameters = Values(TwoTensors(), 1);
  // Nobody seeds.
  EXPECT_EQ(client->SeedOrPull(Write(&parameters)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientFailuresTest, NobodyAtTheAddress) {
  ClientOptions options;
  options.coordinator = "127.0.0.1:1";
  options.manifest = TwoTensors();
  options.connect_timeout = absl::Milliseconds(200);
  const absl::Status status = AggClient::Connect(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))
      << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("shard 0 (127.0.0.1:1)"),
                                     HasSubstr("connect_timeout, 200ms")));
}

}  // namespace
}  // namespace agg
