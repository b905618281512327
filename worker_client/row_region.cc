// What the shard says of its memory is checked before anything is written.
#include "worker_client/row_region.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/row_format.h"
#include "proto/stream_copy.h"
#include "worker_client/pinned_copy.h"
#include "worker_client/row_encoding.h"
#include "worker_client/tensor_view.h"

namespace agg {

absl::StatusOr<std::unique_ptr<RowRegion>> RowRegion::Map(
    const ShardRouter* router, int shard, DType dtype,
    const v1::RegionReply& reply, const FileDescriptor& fd,
    CopyThreads* copies) {
  const v1::Region& said = reply.row();
  const std::vector<int32_t>& slices = router->plan().slices_of_shard[shard];
  if (static_cast<int>(said.dtype()) != static_cast<int>(dtype) ||
      static_cast<size_t>(reply.row_offsets_size()) != slices.size()) {
    return absl::InternalError(
        absl::StrCat("the shard's row is of dtype ", said.dtype(), " with ",
                     reply.row_offsets_size(), " slices"));
  }
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory = SharedMemory::Map(
      fd, static_cast<int64_t>(said.bytes()), SharedMemory::Others::kWrite);
  if (!memory.ok()) return memory.status();
  auto region = absl::WrapUnique(
      new RowRegion(router, dtype, copies, *std::move(memory)));
  region->addresses_.resize(router->plan().slices.size());
  if (dtype == DType::kI8) region->scales_.resize(region->addresses_.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    const absl::Status status =
        region->Place(slices[i], reply.row_offsets(static_cast<int>(i)));
    if (!status.ok()) return status;
  }
  return region;
}

absl::Status RowRegion::Place(int32_t slice, uint64_t offset) {
  const int64_t row_bytes = memory_->num_bytes();
  const int64_t num_elements = router_->plan().slices[slice].num_elements;
  // All elements of a row of int8 come before all scales.
  const auto end = static_cast<uint64_t>(RowElements(dtype_, row_bytes) *
                                         DTypeBytes(dtype_));
  const auto bytes = static_cast<uint64_t>(num_elements * DTypeBytes(dtype_));
  const uint64_t alignment =
      dtype_ == DType::kI8 ? kScaleBlockElements : alignof(float);
  if (offset % alignment != 0 || offset > end || bytes > end - offset) {
    return absl::InternalError(absl::StrCat("slice ", slice, " is at ", offset,
                                            " in a row of ", row_bytes,
                                            " bytes"));
  }
  addresses_[slice] = memory_->data() + offset;
  if (dtype_ == DType::kI8) {
    scales_[slice] =
        memory_->data() + ScaleOffset(row_bytes, static_cast<int64_t>(offset));
  }
  return absl::OkStatus();
}

bool RowRegion::Begin(const RowName& row, bool leaves_out,
                      const std::set<int>& devices) {
  const bool in_place = placement_.Begin(row, leaves_out);
  if (in_place && !(row == row_)) {
    row_ = row;
    written_.assign(addresses_.size(), false);
    devices_.Begin(devices);
  }
  return in_place;
}

absl::StatusOr<RowDevices::Copies> RowRegion::WriteOnDevice(
    absl::Span<const int32_t> slices, const BoundRow& row,
    ErrorFeedback* feedback) {
  std::set<DeviceRow*> used;
  for (const int32_t index : slices) {
    if (written_[index]) continue;
    const Slice& slice = router_->plan().slices[index];
    const TensorView& view = row.views[slice.tensor];
    const int device = row.device(slice.tensor);
    const bool of_host = device == TensorDevices::kHost;
    DeviceRow* by =
        view.dtype == dtype_ && !of_host ? devices_.Find(device) : nullptr;
    const char* from = addresses_[index];
    absl::Status status;
    if (by != nullptr || (view.dtype == dtype_ && of_host)) {
      from = ElementsFrom(view, slice.begin);
    } else {
      status = Write(index, row, feedback);
    }
    if (by == nullptr) by = devices_.any();
    // Pieces of a tensor may be of several allocations.
    const int64_t owner = view.pieces.empty() ? slice.tensor : -1 - index;
    if (status.ok()) {
      status = by->Copy(owner, from, addresses_[index] - memory_->data(),
                        slice.num_elements * DTypeBytes(dtype_));
    }
    if (!status.ok()) return status;
    written_[index] = true;
    used.insert(by);
  }
  return RowDevices::Mark(used);
}

void RowRegion::GiveUpDevice() {
  if (!on_device()) return;
  devices_.GiveUp();
  written_.assign(addresses_.size(), false);
}

absl::Status RowRegion::Write(int32_t index, const BoundRow& row,
                              ErrorFeedback* feedback) {
  if (written_[index]) return absl::OkStatus();
  const Slice& slice = router_->plan().slices[index];
  const TensorView& view = row.views[slice.tensor];
  const int device = row.device(slice.tensor);
  const int64_t bytes = slice.num_elements * DTypeBytes(view.dtype);
  char* const to = addresses_[index];
  const char* from = ElementsFrom(view, slice.begin);
  if (view.dtype != dtype_) {
    PinnedCopy copy(row.devices);
    if (device != TensorDevices::kHost) {
      const absl::StatusOr<const char*> copied = copy.Take(device, from, bytes);
      if (!copied.ok()) return copied.status();
      from = *copied;
    }
    Encode(index, reinterpret_cast<const float*>(from), feedback, row.tally);
  } else if (device != TensorDevices::kHost) {
    // Else the copy takes longer.
    registration_.IsRegistered(device, row.devices);
    const absl::Status copied =
        row.devices->CopyToHost(device, to, from, bytes);
    if (!copied.ok()) return copied;
  } else if (from != to) {
    Share(slice.num_elements, [&](int64_t begin, int64_t end) {
      const int64_t size = DTypeBytes(dtype_);
      CopyBytes(to + begin * size, from + begin * size,
                static_cast<size_t>((end - begin) * size));
    });
  }
  written_[index] = true;
  return absl::OkStatus();
}

void RowRegion::Encode(int32_t index, const float* from,
                       ErrorFeedback* feedback, EncodingTally* tally) {
  const Slice& slice = router_->plan().slices[index];
  const Residual residual =
      feedback == nullptr
          ? Residual()
          : feedback->ResidualOf(slice.tensor, slice.begin, slice.num_elements);
  // Threads share a slice.
  std::atomic<int64_t> num_infinite{0}, num_vanished{0};
  Share(slice.num_elements, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    const auto count = static_cast<size_t>(end - begin);
    const bool kept = !residual.after.empty();
    const EncodingLoss loss = EncodeFloats(
        absl::MakeConstSpan(from + begin, count), dtype_,
        kept ? Residual{residual.before.subspan(first, count),
                        residual.after.subspan(first, count)}
             : Residual(),
        scales_.empty() ? nullptr : scales_[index] + ScaleBytes(dtype_, begin),
        addresses_[index] + begin * DTypeBytes(dtype_));
    num_infinite.fetch_add(loss.num_infinite, std::memory_order_relaxed);
    num_vanished.fetch_add(loss.num_vanished, std::memory_order_relaxed);
  });
  if (tally != nullptr) {
    tally->Set(index, slice.tensor, {num_infinite.load(), num_vanished.load()});
  }
}

void RowRegion::Share(int64_t count,
                      const std::function<void(int64_t, int64_t)>& copy) {
  if (copies_ == nullptr) return copy(0, count);
  copies_->Run(count, copy);
}

}  // namespace agg
