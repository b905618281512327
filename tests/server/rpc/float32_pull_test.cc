// Pulls of float32 bytes that come behind what is published: over a Pull
// stream, in shared memory, and on a Push stream.
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "server/rpc/stream_pulls.h"
#include "tests/server/rpc/loopback_shard.h"
#include "tests/server/shard/deferring_backend.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// Copies that fail: each reader has them tried again.
constexpr int kAlways = 1 << 20;

class Float32PullTest : public ::testing::Test {
 protected:
  Float32PullTest()
      : backend_(&gate_),
        shard_(0, 1, [this](const ShardOptions& options, Backend*) {
          ShardOptions narrowed = options;
          narrowed.pull_dtype = DType::kBF16;
          narrowed.shared_memory = true;
          return std::make_unique<ShardEngine>(narrowed, &backend_);
        }) {
    shard_.Begin(OneTensor(2));
    shard_.Serve();
    channel_ = shard_.NewChannel();
    Push(v1::SEED, {1.0f, -2.0f});
    EXPECT_TRUE(shard_.PublishSeed().ok());
  }
  // Else the shard would wait for the bytes.
  ~Float32PullTest() override { gate_.Open(); }

  void Push(v1::PushKind kind, const std::vector<float>& values) {
    const auto pushed = PushOne(channel_, FrameOf(values, kind, 0));
    ASSERT_TRUE(pushed.second.ok()) << pushed.second.error_message();
  }
  // From version 0 to version 1: 0.75 and -2.25.
  void RunRound() {
    Push(v1::GRADIENT, {0.5f, 0.5f});
    Phase phase;
    phase.epoch = kEpoch;
    phase.rows = {{0, kSession, 0}};
    phase.kind = PhaseKind::kClose;
    ASSERT_TRUE(shard_.engine()->RunPhase(phase).ok());
    phase.kind = PhaseKind::kUpdate;
    phase.publishes = true;
    phase.publish.version = 1;
    phase.step.coefficients = {1.0};
    phase.step.learning_rate = 0.5;
    const auto result = shard_.engine()->RunPhase(phase);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  static v1::PullRequest PullOf(v1::DType dtype) {
    v1::PullRequest request;
    request.set_epoch(kEpoch);
    request.set_version(1);
    request.set_dtype(dtype);
    return request;
  }

  DeferralGate gate_;
  DeferringBackend backend_;
  LoopbackShard shard_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(Float32PullTest, WaitsForItsBytesAndNoOtherPullWaitsForThem) {
  gate_.Close();
  // One that waits for the version, and one that finds it published.
  const auto pull = [this] { return PullAll(channel_, PullOf(v1::F32)); };
  auto early = std::async(std::launch::async, pull);
  RunRound();
  auto late = std::async(std::launch::async, pull);
  const auto [narrowed, status] = PullAll(channel_, PullOf(v1::BF16));
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(narrowed.size(), 1u);
  uint16_t values[2];
  ASSERT_EQ(narrowed[0].payload().size(), sizeof(values));
  std::memcpy(values, narrowed[0].payload().data(), sizeof(values));
  EXPECT_EQ(FloatOfBf16(values[0]), 0.75f);
  EXPECT_EQ(FloatOfBf16(values[1]), -2.25f);
  gate_.Open();
  for (auto* const pulled : {&early, &late}) {
    const auto [frames, f32_status] = pulled->get();
    ASSERT_TRUE(f32_status.ok()) << f32_status.error_message();
    ASSERT_EQ(frames.size(), 1u);
    const float expected[] = {0.75f, -2.25f};
    ASSERT_EQ(frames[0].payload().size(), sizeof(expected));
    EXPECT_EQ(std::memcmp(frames[0].payload().data(), expected, 8), 0);
  }
}

// Who maps a version reads it when it is told where it is: never, then.
TEST_F(Float32PullTest, InSharedMemoryIsNotToldOfBytesThatNeverCome) {
  v1::PullRequest request = PullOf(v1::F32);
  request.set_in_place(true);
  gate_.Fail(kAlways);
  RunRound();
  const auto [frames, status] = PullAll(channel_, request);
  EXPECT_TRUE(frames.empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Float32PullTest, GetsAnErrorWhenTheyNeverCome) {
  gate_.Fail(kAlways);
  RunRound();
  const auto [frames, status] = PullAll(channel_, PullOf(v1::F32));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("no copy"));
  EXPECT_TRUE(PullAll(channel_, PullOf(v1::BF16)).second.ok());
}

TEST_F(Float32PullTest, EndsWhileItWaitsAsAtAnyTime) {
  gate_.Close();
  RunRound();
  grpc::ClientContext context;
  auto stub = v1::Shard::NewStub(channel_);
  const auto stream = stub->Pull(&context, PullOf(v1::F32));
  context.TryCancel();
  v1::PullFrame frame;
  EXPECT_FALSE(stream->Read(&frame));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  gate_.Open();
  EXPECT_TRUE(PullAll(channel_, PullOf(v1::F32)).second.ok());
}

TEST_F(Float32PullTest, OnAPushStreamIsWokenForThem) {
  gate_.Close();
  RunRound();
  PullFrameCache cache;
  std::promise<void> woken;
  StreamPulls::Stream stream;
  stream.wake = [&] { woken.set_value(); };
  stream.end = [](const absl::Status& reason) { FAIL() << reason; };
  const auto pulls =
      std::make_shared<StreamPulls>(shard_.engine(), &cache, stream);
  PullQuery query;
  query.epoch = kEpoch;
  query.version = 1;
  query.dtype = DType::kF32;
  ASSERT_TRUE(pulls->Ask(query).ok());
  EXPECT_FALSE(pulls->Next().has_value());
  gate_.Open();
  woken.get_future().wait();
  EXPECT_TRUE(pulls->Next().has_value());
}

}  // namespace
}  // namespace agg
