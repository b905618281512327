// The client against a job in this process.
#include "worker_client/agg_client.h"

#include <cmath>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "tests/worker_client/fake_job.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorSpec Spec(std::string name, std::vector<int64_t> shape,
                bool optional = false) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.optional = optional;
  return spec;
}

// A tensor of three slices, an empty one, a scalar, an optional one.
Manifest MixedManifest() {
  return {{Spec("big", {2 * kMaxSliceElements + 5}), Spec("empty", {3, 0}),
           Spec("scalar", {}), Spec("maybe", {7}, true), Spec("w", {33, 3})}};
}

Manifest TwoTensors() { return {{Spec("a", {8}), Spec("b", {4})}}; }

// Tensors with deterministic values that bf16 and f16 must round.
std::vector<std::vector<float>> Values(const Manifest& manifest, float scale) {
  std::vector<std::vector<float>> values;
  for (const TensorSpec& spec : manifest.tensors) {
    std::vector<float> tensor(NumElements(spec));
    for (size_t i = 0; i < tensor.size(); ++i) {
      tensor[i] = scale * (static_cast<float>(i % 1009) / 97 - 3.3f);
    }
    values.push_back(std::move(tensor));
  }
  return values;
}

std::vector<TensorView> Read(const std::vector<std::vector<float>>& values) {
  std::vector<TensorView> views;
  for (const auto& tensor : values) {
    views.push_back(absl::MakeConstSpan(tensor));
  }
  return views;
}

std::vector<MutableTensorView> Write(std::vector<std::vector<float>>* values) {
  std::vector<MutableTensorView> views;
  for (auto& tensor : *values) views.push_back(absl::MakeSpan(tensor));
  return views;
}

ClientOptions OptionsFor(const FakeJob& job, Manifest manifest) {
  ClientOptions options;
  options.coordinator = job.coordinator();
  options.manifest = std::move(manifest);
  options.reconnect_window = absl::Seconds(30);
  return options;
}

std::unique_ptr<AggClient> Connect(const ClientOptions& options) {
  auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

struct RoundTrip {
  int num_shards;
  DType push_dtype;
  DType pull_dtype;
};

class RoundTripTest : public ::testing::TestWithParam<RoundTrip> {};

float Round(float value, DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return FloatOfBf16(Bf16OfFloat(value));
    case DType::kF16:
      return FloatOfF16(F16OfFloat(value));
    default:
      return value;
  }
}

TEST_P(RoundTripTest, SeedsPushesAndPullsEveryElement) {
  const Manifest manifest = MixedManifest();
  FakeJob::Options job_options;
  job_options.num_shards = GetParam().num_shards;
  job_options.push_dtype = GetParam().push_dtype;
  job_options.pull_dtype = GetParam().pull_dtype;
  FakeJob job(manifest, job_options);
  auto client = Connect(OptionsFor(job, manifest));
  ASSERT_NE(client, nullptr);

  const auto seed = Values(manifest, 1), gradient = Values(manifest, 0.25f);
  auto parameters = seed;
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  EXPECT_EQ(client->version(), 0);
  auto views = Read(gradient);
  views[3] = TensorView();  // the optional one
  auto outcome = client->PushPull(views, {}, Write(&parameters));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->version, 1);
  EXPECT_TRUE(outcome->included);
  EXPECT_EQ(client->version(), 1);

  auto full = Values(manifest, 0);
  ASSERT_TRUE(client->Pull(1, Write(&full), Precision::kFull).ok());
  for (size_t t = 0; t < full.size(); ++t) {
    for (size_t i = 0; i < full[t].size(); ++i) {
      const float pushed =
          t == 3 ? 0 : Round(gradient[t][i], GetParam().push_dtype);
      const float expected = seed[t][i] - pushed;
      ASSERT_EQ(full[t][i], expected) << t << " " << i;
      ASSERT_EQ(parameters[t][i], Round(expected, GetParam().pull_dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RoundTripTest,
    ::testing::Values(RoundTrip{1, DType::kF32, DType::kF32},
                      RoundTrip{2, DType::kF32, DType::kF32},
                      RoundTrip{3, DType::kBF16, DType::kBF16},
                      RoundTrip{2, DType::kF16, DType::kF16},
                      RoundTrip{9, DType::kF32, DType::kBF16}));

TEST(AggClientTest, RowsInThePushDtypeAreSentAsTheyAre) {
  FakeJob::Options job_options;
  job_options.push_dtype = DType::kBF16;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 0);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  const std::vector<uint16_t> a(8, Bf16OfFloat(2)), b(4, Bf16OfFloat(-3));
  std::vector<TensorView> views(2);
  views[0].data = a.data();
  views[0].num_elements = 8;
  views[1].data = b.data();
  views[1].num_elements = 4;
  views[0].dtype = views[1].dtype = DType::kBF16;
  ASSERT_TRUE(client->PushPull(views, {}, Write(&parameters)).ok());
  EXPECT_EQ(parameters[0], std::vector<float>(8, -2));
  EXPECT_EQ(parameters[1], std::vector<float>(4, 3));
}

TEST(AggClientTest, CommitCarriesWhatThePushWasMadeOf) {
  FakeJob job(TwoTensors(), {});
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  PushInfo info;
  info.examples = 17;
  info.accumulation = 3;
  info.micro_norm_squared_sum = 2.5;
  info.loss = 0.75;
  info.loss_scale = 1024;
  auto outcome =
      client->PushPull(Read(Values(TwoTensors(), 1)), info, Write(&parameters));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->loss, 0.75);
  const v1::CommitRequest commit = job.commit();
  EXPECT_EQ(commit.examples(), 17);
  EXPECT_EQ(commit.accumulation(), 3);
  EXPECT_EQ(commit.micro_norm_squared_sum(), 2.5);
  EXPECT_EQ(commit.loss_scale(), 1024);
  EXPECT_EQ(commit.round(), 0);
}

// A stream that breaks in the middle of a row is opened again and gets the
// whole row; the other shard is not bothered.
TEST(AggClientTest, ABrokenPushIsPushedAgain) {
  const Manifest manifest = MixedManifest();
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(manifest, job_options);
  auto client = Connect(OptionsFor(job, manifest));
  auto parameters = Values(manifest, 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  const int before = job.frames(0), other = job.frames(1);
  job.set_push_fault(0, [before](int count) {
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
  EXPECT_EQ(job.frames(1), 2 * other);
  EXPECT_GT(job.frames(0), 2 * before);
}

TEST(AggClientTest, DamagedPushesAreRepeatedAFewTimesThenNamed) {
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.set_push_fault(1, [](int) {
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "slice 1 differs");
  });
  const absl::Status status = client->Push(Read(Values(TwoTensors(), 1)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("shard 1 (" + job.address(1) + ")"),
                    HasSubstr("slice 1 differs")));
  EXPECT_EQ(job.frames(1), 1 + 4);
}

TEST(AggClientTest, RefusalsAreNotRepeated) {
  FakeJob job(TwoTensors(), {});
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.set_push_fault(0, [](int) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "round is 7");
  });
  const absl::Status status = client->Push(Read(Values(TwoTensors(), 1)));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("round is 7"));
  EXPECT_EQ(job.frames(0), 2);
  job.set_push_fault(0, nullptr);  // the next push opens a new stream
  EXPECT_TRUE(client->Push(Read(Values(TwoTensors(), 1))).ok());
}

TEST(AggClientTest, DamagedPullsAreRepeatedAFewTimesThenNamed) {
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  const auto seed = parameters;
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.set_pull_corruption(1, [](int count) { return count < 2; });
  parameters = Values(TwoTensors(), 0);
  const absl::Status pulled = client->Pull(0, Write(&parameters));
  EXPECT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(parameters, seed);
  EXPECT_EQ(job.pulls(0), 1);
  EXPECT_EQ(job.pulls(1), 3);
  job.set_pull_corruption(1, [](int) { return true; });
  const absl::Status status = client->Pull(0, Write(&parameters));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("shard 1 (" + job.address(1) + ")"));
}

TEST(AggClientTest, PullLatestBeginsAnewWhenAVersionIsGone) {
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.set_pull_fault(1, [](int count) {
    return count == 0 ? grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "gone")
                      : grpc::Status::OK;
  });
  parameters = Values(TwoTensors(), 0);
  const auto version = client->PullLatest(Write(&parameters));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 0);
  EXPECT_EQ(job.pulls(1), 2);
  EXPECT_EQ(parameters, Values(TwoTensors(), 1));
}

struct Ending {
  v1::JobEvent::Kind kind;
  absl::StatusCode code;
  std::string message;
};

class EndingTest : public ::testing::TestWithParam<Ending> {};

TEST_P(EndingTest, EndsThePendingCallAndAllLaterOnes) {
  FakeJob job(TwoTensors(), {});
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  ASSERT_TRUE(client->Push(Read(parameters)).ok());
  job.HoldCommits();
  auto pending = std::async(std::launch::async,
                            [&] { return client->Commit({}).status(); });
  job.AwaitCommit();
  job.Send(GetParam().kind, "shard 1 (10.0.0.1:1) is lost");
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
                      Ending{v1::JobEvent::EXPIRED, absl::StatusCode::kNotFound,
                             "Connect again"}));

TEST(AggClientTest, AShardsLossEndsAPushThatWaits) {
  const Manifest manifest = {{Spec("big", {20 * kMaxSliceElements})}};
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(manifest, job_options);
  auto client = Connect(OptionsFor(job, manifest));
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

TEST(AggClientTest, TheNextInLineSeeds) {
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

TEST(AggClientTest, AFinishedJobCanStillBePulled) {
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

TEST(AggClientTest, ADeadCoordinatorIsNamed) {
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  ASSERT_TRUE(client->Push(Read(parameters)).ok());
  job.HoldCommits();
  auto pending = std::async(std::launch::async,
                            [&] { return client->Commit({}).status(); });
  job.AwaitCommit();
  job.Stop(0);
  const absl::Status status = pending.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status),
              HasSubstr("shard 0 (" + job.coordinator() + ")"));
}

TEST(AggClientTest, ADeadShardIsNamed) {
  FakeJob::Options job_options;
  job_options.num_shards = 2;
  FakeJob job(TwoTensors(), job_options);
  auto client = Connect(OptionsFor(job, TwoTensors()));
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job.Stop(1);
  const absl::Status push = client->Push(Read(parameters));
  EXPECT_EQ(push.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(push), HasSubstr("shard 1 (" + job.address(1) + ")"));
  const absl::Status pull = client->Pull(0, Write(&parameters));
  EXPECT_EQ(pull.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(pull), HasSubstr("shard 1 (" + job.address(1) + ")"));
}

TEST(AggClientTest, NobodyAtTheAddress) {
  ClientOptions options;
  options.coordinator = "127.0.0.1:1";
  options.manifest = TwoTensors();
  options.connect_timeout = absl::Milliseconds(200);
  const absl::Status status = AggClient::Connect(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))
      << status;
  EXPECT_THAT(Message(status), HasSubstr("shard 0 (127.0.0.1:1)"));
}

TEST(AggClientTest, ObserversOnlyPull) {
  FakeJob job(TwoTensors(), {});
  ClientOptions options;
  options.coordinator = job.coordinator();
  options.observer = true;
  auto observer = Connect(options);
  auto values = Values(TwoTensors(), 0);
  EXPECT_EQ(observer->session(), 0);
  EXPECT_EQ(observer->PullLatest(Write(&values)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(observer->Push(Read(values)).code(),
            absl::StatusCode::kFailedPrecondition);
  {
    auto worker = Connect(OptionsFor(job, TwoTensors()));
    auto parameters = Values(TwoTensors(), 1);
    ASSERT_TRUE(worker->SeedOrPull(Write(&parameters)).ok());
  }
  const auto version = observer->PullLatest(Write(&values));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(values, Values(TwoTensors(), 1));
  EXPECT_EQ(observer->manifest().tensors[1].name, "b");
}

TEST(AggClientTest, LeavesOnceAndThenIsCancelled) {
  FakeJob job(TwoTensors(), {});
  {
    auto client = Connect(OptionsFor(job, TwoTensors()));
    EXPECT_TRUE(client->Leave().ok());
    EXPECT_TRUE(client->Leave().ok());
    EXPECT_EQ(client->Commit({}).status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(job.leaves(), 1);
  Connect(OptionsFor(job, TwoTensors()));
  EXPECT_EQ(job.leaves(), 2);
}

TEST(AggClientTest, RefusesBadOptionsAndViews) {
  FakeJob job(TwoTensors(), {});
  ClientOptions options = OptionsFor(job, TwoTensors());
  options.channels_per_shard = 3;
  EXPECT_THAT(Message(AggClient::Connect(options).status()),
              HasSubstr("channels_per_shard is 3; allowed: 1 and 2"));
  options.channels_per_shard = 2;
  options.rank = -1;
  EXPECT_THAT(Message(AggClient::Connect(options).status()),
              HasSubstr("rank is -1"));
  options.rank = 0;
  auto client = Connect(options);
  auto parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  parameters[1].resize(3);
  EXPECT_THAT(Message(client->Push(Read(parameters))),
              HasSubstr("\"b\" has 3 elements here, but 4"));
  EXPECT_THAT(Message(client->Pull(0, Write(&parameters))),
              HasSubstr("\"b\" has 3 elements here, but 4"));
}

}  // namespace
}  // namespace agg
