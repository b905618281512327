// Arguments are written into pinned memory, so that the copy need not wait
// for the host. Begin waits until the last copy has read them.
#include "kernels/cuda/args_block.h"

#include "kernels/cuda/cuda_status.h"

namespace agg::cuda {

absl::StatusOr<ArgsBlock> ArgsBlock::Make() {
  absl::StatusOr<PinnedMemory> host = AllocatePinned(kArgsBytes);
  if (!host.ok()) return host.status();
  absl::StatusOr<DeviceMemory> device = AllocateDevice(kArgsBytes);
  if (!device.ok()) return device.status();
  absl::StatusOr<Event> uploaded = MakeEvent();
  if (!uploaded.ok()) return uploaded.status();
  return ArgsBlock(*std::move(host), *std::move(device), *std::move(uploaded));
}

absl::Status ArgsBlock::Begin() {
  // An event that was never recorded counts as complete.
  AGG_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(uploaded_.get()));
  num_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status ArgsBlock::Upload(cudaStream_t stream) {
  AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(device_.get(), host_.get(),
                                           static_cast<size_t>(num_bytes_),
                                           cudaMemcpyHostToDevice, stream));
  AGG_RETURN_IF_CUDA_ERROR(cudaEventRecord(uploaded_.get(), stream));
  return absl::OkStatus();
}

}  // namespace agg::cuda
