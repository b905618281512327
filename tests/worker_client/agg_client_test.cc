// The client against a job in this process.
#include "worker_client/agg_client.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

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

// As the client rounds the tensor; int8 by the definition in proto/README.md.
std::vector<float> Rounded(const std::vector<float>& values, DType dtype) {
  std::vector<float> rounded;
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype != DType::kI8) {
      rounded.push_back(Round(values[i], dtype));
      continue;
    }
    const size_t begin = i / 256 * 256;
    float largest = 0;
    for (size_t k = begin; k < std::min(begin + 256, values.size()); ++k) {
      largest = std::max(largest, std::fabs(values[k]));
    }
    const float scale = FloatOfBits((BitsOfFloat(largest / 127) + 255) & ~255u);
    const float steps = scale == 0 ? 0 : values[i] * (1 / scale);
    rounded.push_back(scale * std::nearbyint(steps));
  }
  return rounded;
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
    const std::vector<float> rounded =
        Rounded(gradient[t], GetParam().push_dtype);
    for (size_t i = 0; i < full[t].size(); ++i) {
      const float pushed = t == 3 ? 0 : rounded[i];
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
                      RoundTrip{1, DType::kI8, DType::kF32},
                      RoundTrip{3, DType::kI8, DType::kBF16},
                      RoundTrip{9, DType::kF32, DType::kBF16}));

using AggClientTest = SeededTest;

TEST_F(AggClientTest, RowsInThePushDtypeAreSentAsTheyAre) {
  of_job.push_dtype = DType::kBF16;
  Begin(0);
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

// Ten times the same gradient, whose small elements int8 rounds to nothing:
// with feedback (the default) their sum arrives, without it is lost.
TEST_F(AggClientTest, FeedsBackWhatInt8LeavesOut) {
  for (const bool feeds_back : {true, false}) {
    FakeJob::Options job_options;
    job_options.push_dtype = DType::kI8;
    FakeJob job(TwoTensors(), job_options);
    ClientOptions options = OptionsFor(job, TwoTensors());
    if (!feeds_back) options.error_feedback = false;
    auto client = Connect(options);
    auto parameters = Values(TwoTensors(), 0);
    ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
    auto gradient = parameters;
    gradient[0] = {127, 0.25, -0.25, 0.4, 0, 1, 0, 0};
    for (int round = 0; round < 10; ++round) {
      ASSERT_TRUE(
          client->PushPull(Read(gradient), {}, Write(&parameters)).ok());
    }
    EXPECT_EQ(parameters[0][0], -1270);
    EXPECT_EQ(parameters[0][5], -10);
    EXPECT_NEAR(parameters[0][1], feeds_back ? -2.5 : 0, feeds_back ? 0.5 : 0);
    EXPECT_NEAR(parameters[0][2], feeds_back ? 2.5 : 0, feeds_back ? 0.5 : 0);
    EXPECT_NEAR(parameters[0][3], feeds_back ? -4 : 0, feeds_back ? 0.5 : 0);
  }
}

TEST_F(AggClientTest, RowsOfAnInt8JobAreGivenAsFloat32) {
  of_job.push_dtype = DType::kI8;
  Begin(0);
  std::vector<TensorView> views = Read(parameters);
  views[1].dtype = DType::kI8;
  const absl::Status status = client->Push(views);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("is int8; allowed: f32"));
}

TEST_F(AggClientTest, CommitCarriesWhatThePushWasMadeOf) {
  Begin();
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
  const v1::CommitRequest commit = job->commit();
  EXPECT_EQ(commit.examples(), 17);
  EXPECT_EQ(commit.accumulation(), 3);
  EXPECT_EQ(commit.micro_norm_squared_sum(), 2.5);
  EXPECT_EQ(commit.loss_scale(), 1024);
  EXPECT_EQ(commit.round(), 0);
}

// P5: the server tells a repeat from another gradient by the attempt.
TEST_F(AggClientTest, EveryPushOfARoundIsAnotherAttempt) {
  manifest = TwoTensors();
  of_job.num_shards = 2;
  Begin();
  for (const float value : {1.0f, 2.0f}) {
    const auto row = Values(manifest, value);
    ASSERT_TRUE(client->Push(Read(row)).ok());
  }
  ASSERT_TRUE(client->Commit({}).ok());
  EXPECT_EQ(job->commit().attempt(), 1u);
  EXPECT_EQ(job->commit().row_crc32c_size(), 2);
  ASSERT_TRUE(client->Pull(1, Write(&parameters)).ok());
  const auto row = Values(manifest, 3);
  ASSERT_TRUE(client->PushPull(Read(row), {}, Write(&parameters)).ok());
  EXPECT_EQ(job->commit().attempt(), 0u);
}

TEST_F(AggClientTest, CommitCarriesAWellFormedTraceparent) {
  Begin();
  const std::string good =
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  // gRPC would abort on the last one, a server ignore the one before it.
  for (const std::string& value :
       {good, std::string(), good + "0", std::string("a\nb")}) {
    PushInfo info;
    info.traceparent = value;
    ASSERT_TRUE(client->Push(Read(Values(TwoTensors(), 1))).ok());
    ASSERT_TRUE(client->Commit(info).ok());
    EXPECT_EQ(job->commit_traceparents(), value == good
                                              ? std::vector<std::string>{good}
                                              : std::vector<std::string>());
  }
}

TEST_F(AggClientTest, ObserversOnlyPull) {
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
  EXPECT_THAT(Message(observer->Reduce("x", {1.0}).status()),
              HasSubstr("observers only pull"));
  {
    auto worker = Connect(OptionsFor(job, TwoTensors()));
    auto parameters = Values(TwoTensors(), 1);
    ASSERT_TRUE(worker->SeedOrPull(Write(&parameters)).ok());
  }
  const auto version = observer->PullLatest(Write(&values));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(values, Values(TwoTensors(), 1));
  EXPECT_EQ(observer->manifest().tensors[1].name, "b");
  // An observer attends nothing, so that it hears of the end when it asks.
  EXPECT_FALSE(observer->finished());
  job.Finish();
  EXPECT_TRUE(observer->LatestVersion().ok());
  EXPECT_TRUE(observer->finished());
}

TEST_F(AggClientTest, NamesTheOptimizerAndWhatWasInEffect) {
  FakeJob job(TwoTensors(), {});
  auto client = Connect(OptionsFor(job, TwoTensors()));
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->job().optimizer, "sgd");
  auto values = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&values)).ok());
  const auto outcome = client->PushPull(Read(values), {}, Write(&values));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rule, "mean");
  EXPECT_EQ(outcome->scope, "global");
  EXPECT_EQ(outcome->step_scale, "none");
}

// A worker of a data loader, say, which collects its garbage and ends.
TEST_F(AggClientTest, AForkedChildDoesNotEndTheParentsSession) {
  Begin();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = absl::IsFailedPrecondition(client->Leave());
    client = nullptr;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(job->leaves(), 0);
  EXPECT_TRUE(client->PushPull(Read(parameters), {}, Write(&parameters)).ok());
}

TEST_F(AggClientTest, LeavesOnceAndThenIsCancelled) {
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

TEST_F(AggClientTest, RefusesBadOptionsAndViews) {
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
  for (const char* bad : {"", "host", "http://127.0.0.1:50051", "host:0"}) {
    ClientOptions wrong = options;
    wrong.coordinator = bad;
    const absl::Status refused = AggClient::Connect(wrong).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(Message(refused), HasSubstr(std::string("coordinator is \"") +
                                            bad + "\"; allowed: host:port"));
  }
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
