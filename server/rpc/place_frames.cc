// Frames have no payload, so that they may name many slices.
#include "server/rpc/place_frames.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/agg.pb.h"
#include "server/ingest/shard_layout.h"

namespace agg {
namespace {

constexpr size_t kMaxSlicesPerFrame = 1 << 14;

grpc::ByteBuffer Serialize(const v1::PullFrame& frame) {
  const grpc::Slice slice(frame.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// The positions of the shard's slices.
std::vector<size_t> Order(const ShardLayout& layout,
                          absl::Span<const uint32_t> first_slices) {
  std::vector<size_t> order;
  std::vector<bool> taken(layout.slices.size());
  const auto take = [&](size_t position) {
    if (!taken[position]) order.push_back(position);
    taken[position] = true;
  };
  for (const uint32_t slice : first_slices) {
    if (slice >= layout.local_slice.size()) continue;
    const int32_t position = layout.local_slice[slice];
    if (position >= 0) take(static_cast<size_t>(position));
  }
  for (size_t i = 0; i < taken.size(); ++i) take(i);
  return order;
}

}  // namespace

std::vector<grpc::ByteBuffer> MakePlaceFrames(
    const PublishedVersion& version, DType dtype,
    absl::Span<const uint32_t> first_slices, bool takes_device,
    bool* on_device) {
  std::vector<grpc::ByteBuffer> frames;
  const auto& snapshot = *version.snapshot;
  // Of a version on its way not all is there yet.
  auto region = snapshot.master_head();
  // Of a version on its way not all is there yet.
  if (!takes_device || dtype != DType::kF32 || version.progress != nullptr) {
    region = nullptr;
  }
  *on_device = region != nullptr;
  if (region == nullptr) region = snapshot.region(dtype);
  if (region == nullptr) return frames;
  // As it was when the version was made: it may have been lost meanwhile.
  const uint64_t generation =
      *on_device ? snapshot.master_generation() : region->generation();
  const std::vector<size_t> order = Order(*version.layout, first_slices);
  size_t next = 0;
  do {
    v1::PullFrame frame;
    frame.mutable_meta()->set_epoch(version.epoch);
    frame.mutable_meta()->set_round(version.version);
    frame.mutable_meta()->set_dtype(static_cast<v1::DType>(dtype));
    frame.mutable_place()->set_region(region->number());
    frame.mutable_place()->set_generation(generation);
    const size_t end = std::min(next + kMaxSlicesPerFrame, order.size());
    for (; next < end; ++next) {
      frame.mutable_meta()->add_slices(
          static_cast<uint32_t>(version.layout->slices[order[next]]));
      frame.mutable_place()->add_offsets(static_cast<uint64_t>(
          version.layout->ranges[order[next]].begin * DTypeBytes(dtype)));
    }
    frames.push_back(Serialize(frame));
  } while (next < order.size());
  return frames;
}

}  // namespace agg
