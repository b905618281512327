// Pinned memory has one address for the host and for kernels, which read it over
// the bus.
#include "kernels/cuda/args_block.h"

#include "kernels/cuda/cuda_status.h"

namespace agg::cuda {

absl::StatusOr<ArgsBlock> ArgsBlock::Make() {
  absl::StatusOr<PinnedMemory> pinned = AllocatePinned(kArgsBytes);
  if (!pinned.ok()) return pinned.status();
  absl::StatusOr<Event> read = MakeEvent();
  if (!read.ok()) return read.status();
  return ArgsBlock(*std::move(pinned), *std::move(read));
}

absl::Status ArgsBlock::Begin() {
  if (is_marked_) {
    AGG_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(read_.get()));
    is_marked_ = false;
  }
  num_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status ArgsBlock::MarkRead(cudaStream_t stream) {
  AGG_RETURN_IF_CUDA_ERROR(cudaEventRecord(read_.get(), stream));
  is_marked_ = true;
  return absl::OkStatus();
}

}  // namespace agg::cuda
