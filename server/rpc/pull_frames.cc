// Frames are planned once for each version and dtype, and each one's
// header, with the checksums, is made once. Buffers point into the snapshot and
// hold it.
#include "server/rpc/pull_frames.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/shard_plan.h"

namespace agg {
namespace {

// Without it a frame of 4 MiB could name a million slices of one element, and
// its meta would be larger than its payload.
constexpr size_t kMaxSlicesPerFrame = 1024;

absl::string_view SliceBytes(const PublishedVersion& version, size_t position,
                             DType dtype) {
  const auto& range = version.layout->ranges[position];
  return absl::string_view(
      version.snapshot->data(dtype) + range.begin * DTypeBytes(dtype),
      static_cast<size_t>(range.num_elements * DTypeBytes(dtype)));
}

}  // namespace

PullFrames::PullFrames(const PublishedVersion& version, DType dtype)
    : epoch_(version.epoch),
      version_(version.version),
      dtype_(dtype),
      layout_(version.layout) {
  Frame frame;
  for (size_t i = 0; i < layout_->ranges.size(); ++i) {
    const int64_t bytes = layout_->ranges[i].num_elements * DTypeBytes(dtype);
    if (frame.end > frame.first &&
        (frame.bytes + bytes > kMaxFramePayloadBytes ||
         frame.end - frame.first == kMaxSlicesPerFrame)) {
      frames_.push_back(frame);
      frame = Frame();
      frame.first = frame.end = i;
    }
    frame.end = i + 1;
    frame.bytes += bytes;
  }
  frames_.push_back(frame);
  once_ = std::make_unique<std::once_flag[]>(frames_.size());
}

void PullFrames::MakeHeaders(absl::Span<const absl::string_view> pieces,
                             size_t index) {
  Frame& frame = frames_[index];
  v1::PushAck ack;
  v1::FrameMeta& meta = *ack.mutable_meta();
  meta.set_epoch(epoch_);
  meta.set_round(version_);
  meta.set_dtype(static_cast<v1::DType>(dtype_));
  const std::vector<int32_t>& slices = layout_->slices;
  for (size_t i = frame.first; i < frame.end; ++i) {
    meta.add_slices(static_cast<uint32_t>(slices[i]));
  }
  for (absl::string_view piece : pieces) meta.add_crc32c(Crc32c(piece));
  ack.set_last(index + 1 == frames_.size());
  frame.headers[static_cast<int>(FrameForm::kPullFrame)] =
      MakeFrameHeader(meta, frame.bytes);
  frame.headers[static_cast<int>(FrameForm::kPushAck)] =
      MakeFrameHeader(ack, frame.bytes);
}

std::vector<size_t> PullFrames::Order(
    absl::Span<const uint32_t> first_slices) const {
  std::vector<size_t> order;
  std::vector<bool> ordered(frames_.size());
  for (const uint32_t slice : first_slices) {
    if (slice >= layout_->local_slice.size()) continue;
    const int32_t position = layout_->local_slice[slice];
    if (position < 0) continue;
    const auto found = std::upper_bound(
        frames_.begin(), frames_.end(), static_cast<size_t>(position),
        [](size_t at, const Frame& frame) { return at < frame.end; });
    const auto frame = static_cast<size_t>(found - frames_.begin());
    if (!ordered[frame]) order.push_back(frame);
    ordered[frame] = true;
  }
  for (size_t frame = 0; frame < frames_.size(); ++frame) {
    if (!ordered[frame]) order.push_back(frame);
  }
  return order;
}

grpc::ByteBuffer PullFrames::MakeBuffer(size_t index,
                                        const PublishedVersion& version,
                                        FrameForm form) {
  Frame& frame = frames_[index];
  std::vector<absl::string_view> pieces;
  pieces.reserve(frame.end - frame.first);
  for (size_t i = frame.first; i < frame.end; ++i) {
    pieces.push_back(SliceBytes(version, i, dtype_));
  }
  std::call_once(once_[index], [&] { MakeHeaders(pieces, index); });
  return MakeFrame(frame.headers[static_cast<int>(form)], pieces,
                   LendBytes(version.snapshot));
}

std::shared_ptr<PullFrames> PullFrameCache::Get(const PublishedVersion& version,
                                                DType dtype) {
  MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    if (entry->Matches(version, dtype)) return entry;
  }
  if (entries_.size() == kMaxEntries) entries_.pop_front();
  entries_.push_back(std::make_shared<PullFrames>(version, dtype));
  return entries_.back();
}

}  // namespace agg
