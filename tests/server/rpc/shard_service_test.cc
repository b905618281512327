// Push and Pull over loopback, spoken with plain protobuf messages as any
// language would.
#include "server/rpc/shard_service.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/sync_stream.h>

#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::PullRequest PullOf(uint64_t version) {
  v1::PullRequest request;
  request.set_epoch(kEpoch);
  request.set_version(version);
  request.set_dtype(v1::F32);
  return request;
}

Phase PhaseOfRound(PhaseKind kind, uint64_t round) {
  Phase phase;
  phase.kind = kind;
  phase.epoch = kEpoch;
  phase.round = round;
  return phase;
}

class ShardServiceTest : public ::testing::Test {
 protected:
  void Start(int64_t num_elements) {
    shard_.Begin(OneTensor(num_elements));
    shard_.Serve();
    channel_ = shard_.NewChannel();
  }

  void Seed(const std::vector<float>& values) {
    const auto [acks, status] = PushOne(channel_, FrameOf(values, v1::SEED, 0));
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(acks.size(), 1u);
    EXPECT_EQ(acks[0].kind(), v1::SEED);
    const absl::Status published = shard_.PublishSeed();
    ASSERT_TRUE(published.ok()) << published;
  }

  LoopbackShard shard_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ShardServiceTest, SeedsAndPulls) {
  Start(3);
  const std::vector<float> values = {1.0f, -2.0f, 0.5f};
  Seed(values);
  const auto [frames, status] = PullAll(channel_, PullOf(0));
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].meta().epoch(), kEpoch);
  EXPECT_EQ(frames[0].meta().round(), 0u);
  EXPECT_EQ(frames[0].meta().dtype(), v1::F32);
  EXPECT_THAT(frames[0].meta().slices(), ElementsAre(0));
  EXPECT_THAT(frames[0].meta().crc32c(),
              ElementsAre(Crc32c(frames[0].payload())));
  ASSERT_EQ(frames[0].payload().size(), 12u);
  EXPECT_EQ(std::memcmp(frames[0].payload().data(), values.data(), 12), 0);
  EXPECT_EQ(shard_.engine()->Status().pull_bytes, 12);
  EXPECT_EQ(shard_.engine()->Status().push_bytes, 12);
}

TEST_F(ShardServiceTest, ADuplicateIsAcknowledgedAgain) {
  Start(2);
  const v1::PushFrame frame = FrameOf({1, 2}, v1::SEED, 0);
  for (int i = 0; i < 2; ++i) {
    const auto [acks, status] = PushOne(channel_, frame);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(acks.size(), 1u);
  }
  EXPECT_EQ(shard_.engine()->Status().duplicate_bytes, 8);
}

TEST_F(ShardServiceTest, AWrongChecksumIsDataLossAndCanBePushedAgain) {
  Start(2);
  v1::PushFrame frame = FrameOf({1, 2}, v1::SEED, 0);
  frame.mutable_meta()->set_crc32c(0, frame.meta().crc32c(0) ^ 1);
  const auto [acks, status] = PushOne(channel_, frame);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_TRUE(acks.empty());
  EXPECT_EQ(shard_.engine()->Status().crc_errors, 1);
  Seed({1, 2});
}

TEST_F(ShardServiceTest, ErrorsOfTheEngineEndTheStream) {
  Start(2);
  v1::PushFrame frame = FrameOf({1, 2}, v1::SEED, 0);
  frame.mutable_meta()->set_epoch(kEpoch - 1);
  auto status = PushOne(channel_, frame).second;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("current epoch 7"));

  frame = FrameOf({1, 2}, v1::SEED, 0);
  frame.mutable_meta()->set_session(99);
  status = PushOne(channel_, frame).second;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);

  frame = FrameOf({1, 2, 3}, v1::SEED, 0);  // a payload too long
  status = PushOne(channel_, frame).second;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  frame = FrameOf({1, 2}, v1::SEED, 0);
  frame.mutable_meta()->set_slices(0, 4000000000u);
  status = PushOne(channel_, frame).second;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ShardServiceTest, BytesThatAreNoFrameAreRefused) {
  Start(2);
  grpc::GenericStub stub(channel_);
  for (const char* bytes : {"junk", "\x7a\x01z", ""}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, "/agg.v1.Shard/Push", &queue);
    void* tag;
    bool ok;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice{std::string(bytes)};
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bytes;
    EXPECT_THAT(status.error_message(), HasSubstr("malformed frame"));
  }
}

TEST_F(ShardServiceTest, APullWaitsForItsVersion) {
  Start(2);
  auto pull = std::async(std::launch::async,
                         [this] { return PullAll(channel_, PullOf(0)); });
  Seed({3, 4});
  const auto [frames, status] = pull.get();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(frames.size(), 1u);
}

TEST_F(ShardServiceTest, AWaitingPullLearnsThatTheEpochIsOver) {
  Start(2);
  auto pull = std::async(std::launch::async, [this] {
    return PullAll(channel_, PullOf(0)).second;
  });
  shard_.engine()->Lose(kEpoch, absl::UnavailableError("shard 2 is lost"));
  const grpc::Status status = pull.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "shard 2 is lost");
}

TEST_F(ShardServiceTest, ACancelledPullEndsAndIsForgotten) {
  Start(2);
  auto stub = v1::Shard::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Pull(&context, PullOf(0));
  context.TryCancel();
  v1::PullFrame frame;
  EXPECT_FALSE(stream->Read(&frame));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  Seed({5, 6});  // would call back the dead pull
  EXPECT_TRUE(PullAll(channel_, PullOf(0)).second.ok());
}

TEST_F(ShardServiceTest, PullsRefuseWhatIsNotKept) {
  Start(2);
  Seed({1, 2});
  v1::PullRequest request = PullOf(0);
  request.set_dtype(v1::BF16);
  EXPECT_EQ(PullAll(channel_, request).second.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_dtype(v1::DTYPE_UNSPECIFIED);
  EXPECT_EQ(PullAll(channel_, request).second.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request = PullOf(0);
  request.set_epoch(kEpoch + 1);
  EXPECT_EQ(PullAll(channel_, request).second.error_code(),
            grpc::StatusCode::ABORTED);
  request = PullOf(99);
  request.set_latest(true);
  EXPECT_TRUE(PullAll(channel_, request).second.ok());
}

TEST_F(ShardServiceTest, AShardWithoutSlicesSendsOneEmptyFrame) {
  LoopbackShard empty(1, 2);
  empty.Begin(OneTensor(4));
  ASSERT_TRUE(empty.PublishSeed().ok());
  empty.Serve();
  const auto [frames, status] = PullAll(empty.NewChannel(), PullOf(0));
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].meta().slices_size(), 0);
  EXPECT_TRUE(frames[0].payload().empty());
}

// Closes the round of one worker's row and publishes the next version as it
// was: a skipped round.
absl::Status SkipRound(LoopbackShard* shard, uint64_t round) {
  Phase close = PhaseOfRound(PhaseKind::kClose, round);
  close.rows = {{0, kSession}};
  absl::Status status = shard->engine()->RunPhase(close).status();
  if (!status.ok()) return status;
  Phase publish = PhaseOfRound(PhaseKind::kPublish, round);
  publish.publish.version = round + 1;
  publish.publish.unchanged = true;
  return shard->engine()->RunPhase(publish).status();
}

// A puller that has stopped reading must not hold an update up: it gets
// ABORTED with the current version, its memory is free at once.
TEST_F(ShardServiceTest, ARevokedPullIsAborted) {
  constexpr int64_t kElements = 8 << 20;  // 32 MiB: more than any window
  shard_.Begin(OneTensor(kElements));
  shard_.Serve();
  channel_ = shard_.NewChannel();
  const std::vector<float> ones(kMaxSliceElements, 1.0f);
  for (v1::PushKind kind : {v1::SEED, v1::GRADIENT}) {
    for (uint32_t slice = 0; slice < kElements / kMaxSliceElements; ++slice) {
      v1::PushFrame frame = FrameOf(ones, kind, 0);
      frame.mutable_meta()->set_slices(0, slice);
      ASSERT_TRUE(PushOne(channel_, frame).second.ok());
    }
    if (kind == v1::SEED) {
      ASSERT_TRUE(shard_.PublishSeed().ok());
    }
  }

  auto stub = v1::Shard::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Pull(&context, PullOf(0));
  v1::PullFrame frame;
  ASSERT_TRUE(stream->Read(&frame));  // and no further: it now stalls

  std::weak_ptr<const Snapshot> snapshot;
  shard_.engine()->Pull(kEpoch, 0, false,
                        [&](absl::StatusOr<PublishedVersion> version) {
                          snapshot = version->snapshot;
                        });
  ASSERT_FALSE(snapshot.expired());
  const absl::Status skipped = SkipRound(&shard_, 0);
  ASSERT_TRUE(skipped.ok()) << skipped;
  snapshot.lock()->Revoke();
  while (stream->Read(&frame)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED)
      << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("version 0 was replaced"));
  EXPECT_THAT(status.error_message(), HasSubstr("current version 1"));
}

}  // namespace
}  // namespace agg
