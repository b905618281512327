// What the shard says of its memory is checked before anything is written.
#include "worker_client/row_region.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/row_format.h"
#include "proto/stream_copy.h"
#include "worker_client/row_encoding.h"

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

bool RowRegion::Begin(const RowName& row, bool leaves_out) {
  const bool in_place = placement_.Begin(row, leaves_out);
  if (in_place && !(row == row_)) {
    row_ = row;
    written_.assign(addresses_.size(), false);
  }
  return in_place;
}

void RowRegion::Write(int32_t index, const TensorView& view,
                      ErrorFeedback* feedback) {
  if (written_[index]) return;
  written_[index] = true;
  const Slice& slice = router_->plan().slices[index];
  char* const to = addresses_[index];
  const char* const from = ElementsFrom(view, slice.begin);
  if (from == to) return;
  const Residual residual =
      feedback == nullptr || view.dtype == dtype_
          ? Residual()
          : feedback->ResidualOf(slice.tensor, slice.begin, slice.num_elements);
  const auto write = [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    const auto count = static_cast<size_t>(end - begin);
    char* const elements = to + begin * DTypeBytes(dtype_);
    if (view.dtype == dtype_) {
      CopyBytes(elements, from + begin * DTypeBytes(dtype_),
                count * DTypeBytes(dtype_));
      return;
    }
    const bool kept = !residual.after.empty();
    EncodeFloats(
        absl::MakeConstSpan(reinterpret_cast<const float*>(from) + begin,
                            count),
        dtype_,
        kept ? Residual{residual.before.subspan(first, count),
                        residual.after.subspan(first, count)}
             : Residual(),
        scales_.empty() ? nullptr : scales_[index] + ScaleBytes(dtype_, begin),
        elements);
  };
  if (copies_ == nullptr) return write(0, slice.num_elements);
  copies_->Run(slice.num_elements, write);
}

}  // namespace agg
