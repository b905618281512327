// float32 payloads are sent from the caller's memory as they are; 16-bit
// ones are converted into buffers that are used again.
#include "worker_client/frame_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "worker_client/float_narrowing.h"

namespace agg {
namespace {

// The checksums of a frame's slices by ascending index, 0 for absent ones.
std::vector<uint32_t> InOrder(const FramePlan& plan,
                              const v1::FrameMeta& meta) {
  std::vector<uint32_t> crc32c;
  size_t present = 0;
  size_t absent = 0;
  while (present < plan.slices.size() || absent < plan.absent_slices.size()) {
    if (absent == plan.absent_slices.size() ||
        (present < plan.slices.size() &&
         plan.slices[present] < plan.absent_slices[absent])) {
      crc32c.push_back(meta.crc32c(static_cast<int>(present++)));
    } else {
      crc32c.push_back(0);
      ++absent;
    }
  }
  return crc32c;
}

}  // namespace

std::shared_ptr<const void> FrameMemory::Hold(
    std::unique_ptr<std::vector<uint16_t>> staging) {
  {
    MutexLock lock(&mutex_);
    ++frames_in_use_;
  }
  // The deleter keeps this object alive: gRPC may release a frame after the
  // client is destroyed.
  std::shared_ptr<FrameMemory> self = shared_from_this();
  std::vector<uint16_t>* raw = staging.release();
  return std::shared_ptr<const void>(this, [self, raw](const void*) {
    self->Release(std::unique_ptr<std::vector<uint16_t>>(raw));
  });
}

std::unique_ptr<std::vector<uint16_t>> FrameMemory::TakeStaging() {
  MutexLock lock(&mutex_);
  if (free_.empty()) return std::make_unique<std::vector<uint16_t>>();
  std::unique_ptr<std::vector<uint16_t>> staging = std::move(free_.back());
  free_.pop_back();
  return staging;
}

int64_t FrameMemory::frames_in_use() const {
  MutexLock lock(&mutex_);
  return frames_in_use_;
}

void FrameMemory::Release(std::unique_ptr<std::vector<uint16_t>> staging) {
  MutexLock lock(&mutex_);
  --frames_in_use_;
  if (staging != nullptr) free_.push_back(std::move(staging));
}

FrameSource::FrameSource(const ShardRouter* router,
                         absl::Span<const TensorView> bound, int shard,
                         v1::FrameMeta meta, DType dtype,
                         std::shared_ptr<FrameMemory> memory)
    : router_(router),
      bound_(bound),
      meta_(std::move(meta)),
      dtype_(dtype),
      memory_(std::move(memory)),
      plans_(router->PlanFrames(shard, dtype, bound)),
      crc32c_(plans_.size()) {
  meta_.set_dtype(static_cast<v1::DType>(dtype));
}

bool FrameSource::NeedsStaging(const FramePlan& plan) const {
  return std::any_of(plan.slices.begin(), plan.slices.end(),
                     [this](int32_t index) {
                       const Slice& slice = router_->plan().slices[index];
                       return bound_[slice.tensor].dtype != dtype_;
                     });
}

absl::string_view FrameSource::Payload(const Slice& slice,
                                       std::vector<uint16_t>* staging) const {
  const TensorView& view = bound_[slice.tensor];
  const int64_t bytes = slice.num_elements * DTypeBytes(dtype_);
  if (view.dtype == dtype_) {
    return absl::string_view(
        static_cast<const char*>(view.data) + slice.begin * DTypeBytes(dtype_),
        bytes);
  }
  const size_t start = staging->size();
  staging->resize(start + slice.num_elements);
  const absl::Span<uint16_t> to = absl::MakeSpan(*staging).subspan(start);
  NarrowFloats(
      absl::MakeConstSpan(static_cast<const float*>(view.data) + slice.begin,
                          slice.num_elements),
      dtype_, to);
  return absl::string_view(reinterpret_cast<const char*>(to.data()), bytes);
}

absl::optional<uint32_t> FrameSource::row_crc32c() const {
  std::vector<uint32_t> slices;
  for (const std::vector<uint32_t>& frame : crc32c_) {
    if (frame.empty()) return absl::nullopt;  // every frame has a slice
    slices.insert(slices.end(), frame.begin(), frame.end());
  }
  return Crc32cOfWords(slices);
}

grpc::ByteBuffer FrameSource::Make(int frame) {
  const FramePlan& plan = plans_[frame];
  std::unique_ptr<std::vector<uint16_t>> staging;
  if (NeedsStaging(plan)) {
    staging = memory_->TakeStaging();
    staging->clear();
    // Payloads point into the buffer, so it must not be reallocated while they
    // are made.
    staging->reserve(plan.payload_bytes / sizeof(uint16_t));
  }
  v1::FrameMeta meta = meta_;
  std::vector<absl::string_view> payload;
  payload.reserve(plan.slices.size());
  for (int32_t index : plan.slices) {
    payload.push_back(Payload(router_->plan().slices[index], staging.get()));
    meta.add_slices(index);
    meta.add_crc32c(Crc32c(payload.back()));
  }
  for (int32_t index : plan.absent_slices) meta.add_absent_slices(index);
  crc32c_[frame] = InOrder(plan, meta);
  return MakeFrame(meta, payload, memory_->Hold(std::move(staging)));
}

}  // namespace agg
