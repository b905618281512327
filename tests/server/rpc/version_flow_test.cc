// A version on its way to one reader: order, what may be sent, and what is
// wanted back.
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/buffer.h"
#include "proto/agg.pb.h"
#include "server/rpc/stream_pulls.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HostBuffer : public Buffer {
 public:
  explicit HostBuffer(size_t size) : bytes_(size) {}
  char* host() const override { return bytes_.data(); }
  int64_t num_bytes() const override {
    return static_cast<int64_t>(bytes_.size());
  }

 private:
  mutable std::vector<char> bytes_;
};

template <typename Message>
Message Parse(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

// A version of slices 0, 1 and 2, each in a frame of its own.
class VersionFlowTest : public testing::Test {
 protected:
  VersionFlowTest() {
    const Manifest manifest = {{{"a", {(2 << 20) + 5}, "", false}}};
    shard_.Begin(manifest);
    version_.layout = std::make_shared<ShardLayout>(
        *MakeShardLayout(manifest, /*num_shards=*/1, /*ordinal=*/0));
    SetBuffer(std::make_unique<HostBuffer>(static_cast<size_t>(bytes())));
    version_.epoch = kEpoch;
    version_.version = 9;
  }

  int64_t bytes() const {
    return version_.layout->num_elements * static_cast<int64_t>(sizeof(float));
  }
  void SetBuffer(std::unique_ptr<Buffer> buffer) {
    version_.snapshot = snapshot_ = nullptr;
    buffers_.f32 = std::move(buffer);
    snapshot_ = std::make_shared<Snapshot>(&buffers_, DType::kF32);
    version_.snapshot = snapshot_;
  }
  std::unique_ptr<VersionFlow> Flow(FrameForm form,
                                    const std::vector<uint32_t>& first = {}) {
    VersionFlow::Events events;
    events.revoked = [this](const absl::Status& reason) {
      revoked_.push_back(reason);
    };
    events.overtaken = [this](bool cut) { overtaken_.push_back(cut); };
    return std::make_unique<VersionFlow>(shard_.engine(), &cache_, version_,
                                         DType::kF32, form, first, events);
  }

  LoopbackShard shard_;
  PullFrameCache cache_;
  SnapshotBuffers buffers_;
  std::shared_ptr<Snapshot> snapshot_;
  PublishedVersion version_;
  std::vector<absl::Status> revoked_;
  std::vector<bool> overtaken_;
};

TEST_F(VersionFlowTest, AllFramesComeOnceTheWantedOnesFirst) {
  const auto flow = Flow(FrameForm::kPullFrame, {2, 1});
  EXPECT_FALSE(flow->in_place());
  std::vector<uint32_t> slices;
  while (!flow->done()) {
    ASSERT_TRUE(flow->ready());
    const auto frame = Parse<v1::PullFrame>(*flow->Next());
    EXPECT_EQ(frame.meta().round(), 9u);
    slices.push_back(frame.meta().slices(0));
  }
  EXPECT_THAT(slices, ElementsAre(2, 1, 0));
  const ShardStatus status = shard_.engine()->Status();
  EXPECT_EQ(status.pull_bytes, version_.layout->num_parameters * 4);
  EXPECT_EQ(status.pull_bytes_in_place, 0);
}

TEST_F(VersionFlowTest, TheLastOneOnAPushStreamSaysSo) {
  const auto flow = Flow(FrameForm::kPushAck);
  std::vector<bool> last;
  while (!flow->done()) {
    last.push_back(Parse<v1::PushAck>(*flow->Next()).last());
  }
  EXPECT_THAT(last, ElementsAre(false, false, true));
}

TEST_F(VersionFlowTest, WhatIsOnItsWayIsSentAsFarAsItIs) {
  version_.progress = std::make_shared<VersionProgress>();
  const auto flow = Flow(FrameForm::kPushAck);
  EXPECT_FALSE(flow->ready());
  version_.progress->Advance(1);
  ASSERT_TRUE(flow->ready());
  flow->Next();
  EXPECT_FALSE(flow->ready());
  version_.progress->Advance(3);
  ASSERT_TRUE(flow->ready());
  flow->Next();
  EXPECT_FALSE(flow->ready());  // its end comes with the publication alone
  version_.progress->Publish();
  ASSERT_TRUE(flow->ready());
  flow->Next();
  EXPECT_TRUE(flow->done());
}

TEST_F(VersionFlowTest, NoFrameIsReadyBeforeItsBytesAreThere) {
  snapshot_->Defer();
  const auto flow = Flow(FrameForm::kPushAck);
  EXPECT_FALSE(flow->ready());
  snapshot_->Finish(absl::OkStatus());
  EXPECT_TRUE(flow->ready());
}

TEST_F(VersionFlowTest, InSharedMemoryItSaysWhereTheVersionIs) {
  SetBuffer(*SharedBuffer::Allocate(BufferUse::kSnapshot, bytes()));
  const auto flow = Flow(FrameForm::kPlace);
  EXPECT_TRUE(flow->in_place());
  const auto frame = Parse<v1::PullFrame>(*flow->Next());
  EXPECT_TRUE(flow->done());
  EXPECT_EQ(frame.place().offsets_size(), 3);
  EXPECT_EQ(frame.payload(), "");
  EXPECT_EQ(shard_.engine()->Status().pull_bytes_in_place,
            version_.layout->num_parameters * 4);
}

TEST_F(VersionFlowTest, WhereItIsNotSharedItIsSent) {
  const auto flow = Flow(FrameForm::kPlace);
  EXPECT_FALSE(flow->in_place());
  const auto frame = Parse<v1::PullFrame>(*flow->Next());
  EXPECT_FALSE(frame.payload().empty());
}

TEST_F(VersionFlowTest, ItsReaderHearsWhenItsMemoryIsWantedBack) {
  auto flow = Flow(FrameForm::kPullFrame);
  while (!flow->done()) flow->Next();  // its bytes may wait for a reader
  version_.snapshot->Revoke();
  ASSERT_EQ(revoked_.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(revoked_[0]));
  EXPECT_THAT(revoked_[0].message(),
              HasSubstr("version 9 was replaced while it was being pulled"));
  flow.reset();
  // One that comes too late hears so at once.
  Flow(FrameForm::kPullFrame);
  EXPECT_EQ(revoked_.size(), 2u);
}

// A round waits neither for the reader nor for what gRPC has of its frames.
TEST_F(VersionFlowTest, ItLetsGoOfTheVersionWhateverItsReaderDoes) {
  for (const bool shared : {false, true}) {
    std::vector<SnapshotBuffers> memories(1);
    memories[0].f32 =
        std::make_unique<HostBuffer>(static_cast<size_t>(bytes()));
    if (shared) {
      memories[0].f32 = *SharedBuffer::Allocate(BufferUse::kSnapshot, bytes());
    }
    SnapshotPool pool(std::move(memories), DType::kF32);
    version_.snapshot = pool.AcquireWithin(absl::ZeroDuration());
    const auto flow = Flow(shared ? FrameForm::kPlace : FrameForm::kPullFrame);
    const grpc::ByteBuffer unread = *flow->Next();
    version_.snapshot->Revoke();
    if (!shared) {
      EXPECT_FALSE(flow->ready());
      EXPECT_FALSE(flow->Next().has_value());
    }
    version_.snapshot = nullptr;
    EXPECT_EQ(pool.Available(), shared);
    EXPECT_NE(pool.TakeOverWithin(absl::ZeroDuration()), nullptr);
  }
  EXPECT_EQ(revoked_.size(), 2u);
  // Of the first one an error follows; who maps it looks at the generation.
  EXPECT_EQ(overtaken_, std::vector<bool>({false}));
}

TEST_F(VersionFlowTest, WhoMayHaveItAllIsCutOffBeforeItsBytesChange) {
  std::vector<SnapshotBuffers> memories(1);
  memories[0].f32 = std::make_unique<HostBuffer>(static_cast<size_t>(bytes()));
  SnapshotPool pool(std::move(memories), DType::kF32);
  version_.snapshot = pool.AcquireWithin(absl::ZeroDuration());
  const auto flow = Flow(FrameForm::kPullFrame);
  std::vector<grpc::ByteBuffer> unread;
  while (!flow->done()) unread.push_back(*flow->Next());
  version_.snapshot->Revoke();
  version_.snapshot = nullptr;
  EXPECT_TRUE(overtaken_.empty());
  EXPECT_NE(pool.TakeOverWithin(absl::ZeroDuration()), nullptr);
  EXPECT_EQ(overtaken_, std::vector<bool>({true}));
}

TEST_F(VersionFlowTest, OneOfAnEpochThatIsOverSaysSo) {
  auto flow = Flow(FrameForm::kPullFrame);
  ASSERT_TRUE(shard_.engine()->Attach(kEpoch + 1, nullptr).ok());
  version_.snapshot->Revoke();
  ASSERT_EQ(revoked_.size(), 1u);
  EXPECT_THAT(revoked_[0].message(), HasSubstr("stale epoch 7"));
  EXPECT_THAT(revoked_[0].message(), HasSubstr("current epoch 8"));
}

TEST_F(VersionFlowTest, WhoHasLetGoHearsNothing) {
  Flow(FrameForm::kPullFrame);
  version_.snapshot->Revoke();
  EXPECT_TRUE(revoked_.empty());
}

}  // namespace
}  // namespace agg
