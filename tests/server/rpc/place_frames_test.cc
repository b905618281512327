#include "server/rpc/place_frames.h"

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
#include "server/ingest/shard_layout.h"
#include "server/params/shared_buffer.h"
#include "server/params/snapshot.h"
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
        MakePlaceFrames(version_, DType::kF32, expected.first);
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

TEST_F(PlaceFramesTest, NoFramesOfWhatIsNotShared) {
  EXPECT_TRUE(MakePlaceFrames(version_, DType::kBF16, {}).empty());
}

}  // namespace
}  // namespace agg
