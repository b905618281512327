#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/buffer.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "server/base/shared_memory.h"
#include "server/ingest/shard_layout.h"
#include "server/params/shared_buffer.h"
#include "server/params/snapshot.h"
#include "server/rpc/stream_pulls.h"
#include "server/shard/published_version.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// So high that a header is larger than what gRPC copies instead of sharing.
constexpr uint64_t kEpoch = uint64_t{3} << 60;

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

// Slices of 2^20, 2^20 and 5 elements: a frame of its own for the first, then
// one for the second, and one for the rest, as 4 MiB hold one full slice.
class PullFramesTest : public testing::Test {
 protected:
  PullFramesTest() {
    const Manifest manifest = {{{"a", {(2 << 20) + 5}, "", false}}};
    version_.layout = std::make_shared<ShardLayout>(
        *MakeShardLayout(manifest, /*num_shards=*/1, /*ordinal=*/0));
    buffers_.f32 = std::make_unique<HostBuffer>(
        static_cast<size_t>(version_.layout->num_elements) * sizeof(float));
    char* const bytes = buffers_.f32->host();
    for (int64_t i = 0; i < buffers_.f32->num_bytes(); ++i) {
      bytes[i] = static_cast<char>(i * 7 + i / 251);
    }
    version_.epoch = kEpoch;
    version_.version = 9;
    version_.snapshot = std::make_shared<Snapshot>(&buffers_, DType::kF32);
  }

  SnapshotBuffers buffers_;
  PublishedVersion version_;
};

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return slices;
}

v1::PullFrame Parse(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  for (const grpc::Slice& slice : SlicesOf(buffer)) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PullFrame frame;
  EXPECT_TRUE(frame.ParseFromString(bytes));
  return frame;
}

// Slice 0 is in frame 0, 1 in 1 and 2 in 2: see PullFramesTest.
TEST_F(PullFramesTest, FramesOfTheFirstSlicesComeFirst) {
  const PullFrames frames(version_, DType::kF32);
  ASSERT_EQ(frames.num_frames(), 3u);
  const struct {
    std::vector<uint32_t> first;
    std::vector<size_t> order;
  } cases[] = {
      {{}, {0, 1, 2}},
      {{2}, {2, 0, 1}},
      {{2, 1, 2, 0}, {2, 1, 0}},
      {{1, 3, 0xffffffffu}, {1, 0, 2}},  // there are no such slices
  };
  for (const auto& test : cases) {
    EXPECT_EQ(frames.Order(test.first), test.order);
  }
}

TEST_F(PullFramesTest, FramesHaveTheVersionsBytes) {
  PullFrames frames(version_, DType::kF32);
  size_t position = 0;
  for (size_t i = 0; i < frames.num_frames(); ++i) {
    const v1::PullFrame frame =
        Parse(frames.MakeBuffer(i, version_, FrameForm::kPullFrame));
    EXPECT_EQ(frame.meta().epoch(), kEpoch);
    EXPECT_EQ(frame.meta().round(), 9u);
    EXPECT_EQ(frame.meta().dtype(), v1::F32);
    ASSERT_EQ(frame.meta().slices_size(), frame.meta().crc32c_size());
    std::string expected;
    for (int s = 0; s < frame.meta().slices_size(); ++s, ++position) {
      const ElementRange& range = version_.layout->ranges[position];
      const std::string bytes(buffers_.f32->host() + range.begin * 4,
                              static_cast<size_t>(range.num_elements) * 4);
      EXPECT_EQ(frame.meta().crc32c(s), Crc32c(bytes));
      expected += bytes;
    }
    EXPECT_TRUE(frame.payload() == expected) << i;
    EXPECT_EQ(frames.payload_bytes(i), static_cast<int64_t>(expected.size()));
  }
  EXPECT_EQ(position, version_.layout->ranges.size());
}

// In acknowledgements the same comes as field 7, and the last one says so.
TEST_F(PullFramesTest, FramesOfAPushStreamSayTheSame) {
  PullFrames frames(version_, DType::kF32);
  for (size_t i = 0; i < frames.num_frames(); ++i) {
    const v1::PullFrame frame =
        Parse(frames.MakeBuffer(i, version_, FrameForm::kPullFrame));
    FrameReader reader;
    v1::PushAck ack;
    ASSERT_TRUE(
        reader
            .InitAck(frames.MakeBuffer(i, version_, FrameForm::kPushAck), &ack)
            .ok());
    EXPECT_EQ(ack.meta().SerializeAsString(), frame.meta().SerializeAsString());
    EXPECT_EQ(ack.last(), i + 1 == frames.num_frames());
    EXPECT_EQ(reader.remaining_bytes(), frames.payload_bytes(i));
    std::string payload(frame.payload().size(), '\0');
    reader.Read(&payload[0], reader.remaining_bytes());
    EXPECT_TRUE(payload == frame.payload()) << i;
  }
}

// What stands before a payload is the same memory in all pulls of a frame, also
// when they come at the same time.
TEST_F(PullFramesTest, PullsShareAFramesHeader) {
  PullFrames frames(version_, DType::kF32);
  constexpr int kPulls = 4;
  std::vector<grpc::ByteBuffer> buffers(kPulls);
  std::vector<std::thread> threads;
  for (grpc::ByteBuffer& buffer : buffers) {
    threads.emplace_back([&] {
      buffer = frames.MakeBuffer(0, version_, FrameForm::kPullFrame);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<grpc::Slice> first = SlicesOf(buffers[0]);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(reinterpret_cast<const char*>(first[1].begin()),
            buffers_.f32->host());
  for (const grpc::ByteBuffer& buffer : buffers) {
    EXPECT_EQ(SlicesOf(buffer)[0].begin(), first[0].begin());
  }
}

TEST_F(PullFramesTest, HoldsTheVersionAsLongAsAFrameIsThere) {
  PullFrames frames(version_, DType::kF32);
  std::weak_ptr<const Snapshot> watch = version_.snapshot;
  grpc::ByteBuffer buffer =
      frames.MakeBuffer(0, version_, FrameForm::kPullFrame);
  version_.snapshot = nullptr;
  EXPECT_FALSE(watch.expired());
  buffer.Clear();
  EXPECT_TRUE(watch.expired());
}

// Four slices, in shared memory.
class PlaceFramesTest : public testing::Test {
 protected:
  PlaceFramesTest() {
    const Manifest manifest = {{{"a", {40}, "", false},
                                {"b", {40}, "", false},
                                {"c", {20}, "", false},
                                {"d", {20}, "", false}}};
    version_.layout = std::make_shared<ShardLayout>(
        *MakeShardLayout(manifest, /*num_shards=*/1, /*ordinal=*/0));
    buffers_.f32 = *SharedBuffer::Allocate(
        BufferUse::kSnapshot,
        version_.layout->num_elements * static_cast<int64_t>(sizeof(float)));
    version_.epoch = 3;
    version_.version = 9;
    version_.snapshot = std::make_shared<Snapshot>(&buffers_, DType::kF32);
  }

  std::vector<grpc::ByteBuffer> Frames(DType dtype,
                                       const std::vector<uint32_t>& first,
                                       bool takes_device = false) {
    return MakePlaceFrames(version_, dtype, first, takes_device, &on_device_);
  }

  bool on_device_ = false;
  SnapshotBuffers buffers_;
  PublishedVersion version_;
};

TEST_F(PlaceFramesTest, TheFirstSlicesComeFirst) {
  const struct {
    std::vector<uint32_t> first;
    std::vector<uint32_t> order;
  } kCases[] = {
      {{}, {0, 1, 2, 3}},
      {{2}, {2, 0, 1, 3}},
      {{3, 1, 3}, {3, 1, 0, 2}},
      {{4, 1000000, ~0u, 1}, {1, 0, 2, 3}},  // none of these but the last
  };
  for (const auto& expected : kCases) {
    const std::vector<grpc::ByteBuffer> frames =
        Frames(DType::kF32, expected.first);
    ASSERT_EQ(frames.size(), 1u);
    const v1::PullFrame frame = Parse(frames[0]);
    const std::vector<uint32_t> order(frame.meta().slices().begin(),
                                      frame.meta().slices().end());
    EXPECT_EQ(order, expected.order);
    ASSERT_EQ(frame.place().offsets_size(), 4);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(frame.place().offsets(i),
                static_cast<uint64_t>(version_.layout->ranges[order[i]].begin) *
                    sizeof(float));
    }
  }
}

// As long as the device has its values.
TEST_F(PlaceFramesTest, OnADeviceForWhoTakesIt) {
  const auto head = std::make_shared<Region>(
      *SharedMemory::Create(Region::MappedBytes(0),
                            SharedMemory::Others::kRead),
      0);
  head->BeginGeneration();
  auto snapshot = std::make_shared<Snapshot>(&buffers_, DType::kF32);
  snapshot->NoteMaster(head);
  version_.snapshot = snapshot;
  v1::PullFrame frame = Parse(Frames(DType::kF32, {}, true)[0]);
  EXPECT_TRUE(on_device_);
  EXPECT_EQ(frame.place().region(), head->number());
  EXPECT_EQ(frame.place().generation(), 1u);
  EXPECT_EQ(frame.place().offsets_size(), 4);
  frame = Parse(Frames(DType::kF32, {}, false)[0]);
  EXPECT_FALSE(on_device_);
  EXPECT_NE(frame.place().region(), head->number());
  head->BeginGeneration();  // master is written
  frame = Parse(Frames(DType::kF32, {}, true)[0]);
  EXPECT_FALSE(on_device_);
  EXPECT_NE(frame.place().region(), head->number());
}

TEST_F(PlaceFramesTest, NoFramesOfWhatIsNotShared) {
  EXPECT_TRUE(Frames(DType::kBF16, {}).empty());
}

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

v1::PullRequest GoodRequest() {
  v1::PullRequest request;
  request.set_epoch(7);
  request.set_version(3);
  request.set_latest(true);
  request.set_dtype(v1::BF16);
  return request;
}

TEST(PullQueryTest, TakesEveryField) {
  const absl::StatusOr<PullQuery> query =
      ParsePullQuery(Bytes(GoodRequest().SerializeAsString()));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->epoch, 7u);
  EXPECT_EQ(query->version, 3u);
  EXPECT_TRUE(query->latest);
  EXPECT_EQ(query->dtype, DType::kBF16);
}

TEST(PullQueryTest, TheRequestMayLieInSeveralSlices) {
  const std::string bytes = GoodRequest().SerializeAsString();
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, 1)),
                                grpc::Slice(bytes.substr(1))};
  EXPECT_EQ(ParsePullQuery(grpc::ByteBuffer(slices, 2))->version, 3u);
}

TEST(PullQueryTest, TakesSoManyFirstSlicesAndNoMore) {
  v1::PullRequest request = GoodRequest();
  for (int i = 0; i < kMaxFirstSlices; ++i) {
    request.add_first_slices(0xffffffffu - static_cast<uint32_t>(i));
  }
  const absl::StatusOr<PullQuery> query =
      ParsePullQuery(Bytes(request.SerializeAsString()));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->first_slices.size(), size_t{kMaxFirstSlices});
  EXPECT_EQ(query->first_slices[1], 0xfffffffeu);
  request.add_first_slices(1);
  EXPECT_EQ(ParsePullQuery(Bytes(request.SerializeAsString())).status(),
            absl::InvalidArgumentError(
                "first_slices has 201 slices; allowed: at most 200"));
}

TEST(PullQueryTest, RefusesOtherBytesAndLongOnes) {
  for (const std::string& bytes :
       {std::string("junk"), std::string(2000, '\0'),
        GoodRequest().SerializeAsString() + std::string(2000, 'x')}) {
    EXPECT_EQ(ParsePullQuery(Bytes(bytes)).status(),
              absl::InvalidArgumentError("malformed PullRequest"));
  }
}

TEST(PullQueryTest, RefusesDTypesThatDoNotExist) {
  for (const int dtype : {0, 4, 257, -1}) {
    v1::PullRequest request = GoodRequest();
    request.set_dtype(static_cast<v1::DType>(dtype));
    const absl::Status status =
        ParsePullQuery(Bytes(request.SerializeAsString())).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("dtype is " + std::to_string(dtype) + "; allowed: F32 (1)"));
  }
}

}  // namespace
}  // namespace agg
