// float32 payloads are sent from the caller's memory as they are; others are
// rounded into buffers that are used again.
#include "worker_client/frame_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "kernels/row_format.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"
#include "worker_client/row_encoding.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Buffers are used again: a frame of the next push takes one that is released.

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

// PushInfo's fields, one by one: what was not given is left out.

v1::CommitRequest CommitOf(const RowName& row, const PushInfo& info) {
  v1::CommitRequest request;
  request.set_kind(v1::GRADIENT);
  request.set_round(row.round);
  request.set_attempt(row.attempt);
  request.set_examples(info.examples);
  request.set_accumulation(info.accumulation);
  if (info.micro_norm_squared_sum.has_value()) {
    request.set_micro_norm_squared_sum(*info.micro_norm_squared_sum);
  }
  if (info.loss.has_value()) request.set_loss(*info.loss);
  request.set_loss_scale(info.loss_scale);
  request.set_parameters_digest(info.parameters_digest);
  return request;
}

namespace {

// Of a row on a device. Numbers travel alone, and 64 MiB are some 30 us on a
// card of 4 TB/s: a frame takes as long.
constexpr int64_t kDeviceFrameBytes = int64_t{64} << 20;

// Of staging, for so many bytes: slices begin at whole words.
size_t StagingWords(int64_t bytes) {
  return (static_cast<size_t>(bytes) + sizeof(uint16_t) - 1) / sizeof(uint16_t);
}

}  // namespace

FrameSource::FrameSource(const ShardRouter* router, const BoundRow& bound,
                         int shard, v1::FrameMeta meta, DType dtype,
                         std::shared_ptr<FrameMemory> memory,
                         ErrorFeedback* feedback, RowRegion* region)
    : router_(router),
      shard_(shard),
      bound_(bound),
      meta_(std::move(meta)),
      dtype_(dtype),
      memory_(std::move(memory)),
      feedback_(feedback),
      region_(region) {
  meta_.set_dtype(static_cast<v1::DType>(dtype));
  meta_.set_in_place(region != nullptr);
  meta_.set_on_device(region != nullptr && region->on_device());
}

FrameSource::~FrameSource() {
  for (RowDevices::Copies& copies : copied_) {
    if (!meta_.on_device()) break;
    if (!RowDevices::Await(std::move(copies)).ok()) LeaveDevice();
  }
}

// What frames have named on the device stays there: named again, it is passed
// over, or taken from the host's side, where it is written then.
void FrameSource::LeaveDevice() {
  meta_.set_on_device(false);
  region_->GiveUpDevice();
  for (RowDevices::Copies& copies : copied_) copies.clear();
}

int64_t FrameSource::max_frame_bytes() const {
  return meta_.on_device() ? kDeviceFrameBytes : kMaxFramePayloadBytes;
}

void FrameSource::Add(std::vector<FramePlan> plans) {
  for (FramePlan& plan : plans) {
    plans_.push_back(std::move(plan));
    copied_.emplace_back();
    if (!meta_.on_device()) continue;
    auto begun =
        region_->WriteOnDevice(plans_.back().slices, bound_, feedback_);
    if (begun.ok()) {
      copied_.back() = *std::move(begun);
    } else {
      LeaveDevice();
    }
  }
}

bool FrameSource::NeedsStaging(const FramePlan& plan) const {
  return std::any_of(
      plan.slices.begin(), plan.slices.end(), [this](int32_t index) {
        const Slice& slice = router_->plan().slices[index];
        return bound_.views[slice.tensor].dtype != dtype_ ||
               bound_.device(slice.tensor) != TensorDevices::kHost;
      });
}

absl::StatusOr<absl::string_view> FrameSource::Payload(
    int32_t index, std::vector<uint16_t>* staging) const {
  const Slice& slice = router_->plan().slices[index];
  const TensorView& view = bound_.views[slice.tensor];
  const int device = bound_.device(slice.tensor);
  const char* from = ElementsFrom(view, slice.begin);
  const int64_t bytes = PayloadBytes(dtype_, slice.num_elements);
  const bool as_is = view.dtype == dtype_;
  if (as_is && device == TensorDevices::kHost) {
    return absl::string_view(from, bytes);
  }
  const size_t start = staging->size();
  staging->resize(start + StagingWords(bytes));
  char* const to = reinterpret_cast<char*>(staging->data() + start);
  if (as_is) {
    AGG_RETURN_IF_ERROR(bound_.devices->CopyToHost(device, to, from, bytes));
    return absl::string_view(to, bytes);
  }
  PinnedCopy copy(bound_.devices);
  if (device != TensorDevices::kHost) {
    AGG_ASSIGN_OR_RETURN(
        const char* floats,
        copy.Take(device, from, slice.num_elements * DTypeBytes(view.dtype)));
    from = floats;
  }
  const EncodingLoss loss = EncodeFloats(
      absl::MakeConstSpan(reinterpret_cast<const float*>(from),
                          slice.num_elements),
      dtype_,
      feedback_ == nullptr ? Residual()
                           : feedback_->ResidualOf(slice.tensor, slice.begin,
                                                   slice.num_elements),
      to);
  if (bound_.tally != nullptr) bound_.tally->Set(index, slice.tensor, loss);
  return absl::string_view(to, bytes);
}

absl::optional<uint32_t> FrameSource::row_crc32c() const {
  const std::vector<int32_t>& indices = router_->plan().slices_of_shard[shard_];
  std::vector<uint32_t> slices;
  slices.reserve(indices.size());
  for (const int32_t index : indices) {
    const auto found = crc32c_.find(index);
    if (found == crc32c_.end()) return absl::nullopt;
    slices.push_back(found->second);
  }
  return Crc32cOfWords(slices);
}

absl::Status FrameSource::WriteInPlace(int frame) {
  if (meta_.on_device()) {
    RowDevices::Copies copies = std::move(copied_[frame]);
    copied_[frame].clear();
    if (RowDevices::Await(std::move(copies)).ok()) return absl::OkStatus();
    LeaveDevice();
  }
  for (int32_t index : plans_[frame].slices) {
    AGG_RETURN_IF_ERROR(region_->Write(index, bound_, feedback_));
  }
  return absl::OkStatus();
}

absl::StatusOr<FrameSource::Body> FrameSource::MakeInPlace(int frame) {
  AGG_RETURN_IF_ERROR(WriteInPlace(frame));
  const FramePlan& plan = plans_[frame];
  Body body;
  body.meta = meta_;
  for (int32_t index : plan.slices) {
    body.meta.add_slices(index);
    crc32c_[index] = 0;
  }
  for (int32_t index : plan.absent_slices) {
    body.meta.add_absent_slices(index);
    crc32c_[index] = 0;
  }
  return body;
}

absl::StatusOr<FrameSource::Body> FrameSource::MakeBody(int frame) {
  if (region_ != nullptr) return MakeInPlace(frame);
  const FramePlan& plan = plans_[frame];
  std::unique_ptr<std::vector<uint16_t>> staging;
  if (NeedsStaging(plan)) {
    staging = memory_->TakeStaging();
    staging->clear();
    // Payloads point into the buffer, so it must not be reallocated while they
    // are made.
    staging->reserve(StagingWords(plan.payload_bytes) + plan.slices.size());
  }
  Body body;
  v1::FrameMeta& meta = body.meta;
  meta = meta_;
  std::vector<absl::string_view>& payload = body.payload;
  payload.reserve(plan.slices.size());
  for (int32_t index : plan.slices) {
    AGG_ASSIGN_OR_RETURN(const absl::string_view bytes,
                         Payload(index, staging.get()));
    payload.push_back(bytes);
    meta.add_slices(index);
    meta.add_crc32c(Crc32c(payload.back()));
    crc32c_[index] = meta.crc32c(meta.crc32c_size() - 1);
  }
  for (int32_t index : plan.absent_slices) {
    meta.add_absent_slices(index);
    crc32c_[index] = 0;
  }
  body.owner = memory_->Hold(std::move(staging));
  return body;
}

absl::Status FrameSource::Prepare() {
  AGG_DCHECK(num_frames() == 1);
  absl::StatusOr<Body> body =
      status_.ok() ? MakeBody(0) : absl::StatusOr<Body>(status_);
  if (body.ok()) {
    prepared_ = *std::move(body);
  } else {
    Fail(body.status());
  }
  return status_;
}

absl::StatusOr<grpc::ByteBuffer> FrameSource::Make(int frame) {
  if (!status_.ok()) return status_;
  Body body;
  if (prepared_.has_value()) {
    body = *std::move(prepared_);
    prepared_.reset();
  } else {
    absl::StatusOr<Body> made = MakeBody(frame);
    if (!made.ok()) {
      Fail(made.status());
      return status_;
    }
    body = *std::move(made);
  }
  const bool asks = frame == (requests_first_ ? 0 : num_frames() - 1);
  if (!asks || (commit_ == nullptr && pull_ == nullptr)) {
    return MakeFrame(body.meta, body.payload, std::move(body.owner));
  }
  v1::PushFrame head;
  *head.mutable_meta() = std::move(body.meta);
  if (commit_ != nullptr) *head.mutable_commit() = *commit_;
  if (pull_ != nullptr) *head.mutable_pull() = *pull_;
  const int64_t bytes = region_ == nullptr ? plans_[frame].payload_bytes : 0;
  return MakeFrame(MakeFrameHeader(head, bytes), body.payload,
                   std::move(body.owner));
}

}  // namespace agg
