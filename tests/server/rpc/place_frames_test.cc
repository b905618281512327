#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "server/base/shared_memory.h"
#include "server/ingest/shard_layout.h"
#include "server/params/shared_buffer.h"
#include "server/params/snapshot.h"
#include "server/rpc/stream_pulls.h"
#include "server/shard/published_version.h"

namespace agg {
namespace {

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

v1::PullFrame Parse(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PullFrame frame;
  EXPECT_TRUE(frame.ParseFromString(bytes));
  return frame;
}

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

}  // namespace
}  // namespace agg
