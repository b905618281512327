// What the shard says of its memory is checked before anything is written.
#include "worker_client/row_region.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/stream_copy.h"
#include "worker_client/row_encoding.h"

namespace agg {

absl::StatusOr<std::unique_ptr<RowRegion>> RowRegion::Map(
    const ShardRouter* router, int shard, DType dtype,
    const v1::RegionReply& reply, const FileDescriptor& fd) {
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
  auto region =
      absl::WrapUnique(new RowRegion(router, dtype, *std::move(memory)));
  region->addresses_.resize(router->plan().slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    const uint64_t offset = reply.row_offsets(static_cast<int>(i));
    const auto bytes = static_cast<uint64_t>(
        router->plan().slices[slices[i]].num_elements * DTypeBytes(dtype));
    if (offset % alignof(float) != 0 || offset > said.bytes() ||
        bytes > said.bytes() - offset) {
      return absl::InternalError(absl::StrCat("slice ", slices[i], " is at ",
                                              offset, " in a row of ",
                                              said.bytes(), " bytes"));
    }
    region->addresses_[slices[i]] = region->memory_->data() + offset;
  }
  return region;
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
  const auto num_elements = static_cast<size_t>(slice.num_elements);
  char* const to = addresses_[index];
  const char* const from = static_cast<const char*>(view.data) +
                           slice.begin * DTypeBytes(view.dtype);
  if (from == to) return;
  if (view.dtype == dtype_) {
    CopyBytes(to, from, num_elements * DTypeBytes(dtype_));
  } else {
    EncodeFloats(
        absl::MakeConstSpan(reinterpret_cast<const float*>(from), num_elements),
        dtype_,
        feedback == nullptr ? Residual()
                            : feedback->ResidualOf(slice.tensor, slice.begin,
                                                   slice.num_elements),
        to);
  }
}

}  // namespace agg
