// Copies and fills, one behind the other on the stream of the kernels. Apart
// from Update because nothing here comes in a round.
#include "kernels/cuda/cuda_state.h"

#include "kernels/cuda/cuda_buffer.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/pinned_memory.h"
#include "kernels/cuda/snapshot_copies.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/optimizer_step.h"

namespace agg::cuda {
namespace {

absl::Status FillState(Buffer* state, float value, cudaStream_t stream) {
  if (state == nullptr) return absl::OkStatus();
  AGG_RETURN_IF_CUDA_ERROR(
      LaunchFill(FloatsOf(state), state->num_bytes() / 4, value, stream));
  return absl::OkStatus();
}

}  // namespace

absl::Status ComputeLoad(const OptimizerOptions& optimizer,
                         const Buffer& snapshot, Buffer* master, Buffer* state0,
                         Buffer* state1, Buffer* narrowed_snapshot,
                         DType narrowed_dtype, CudaScratch* scratch,
                         uint16_t* narrowed) {
  const cudaStream_t stream = scratch->compute.get();
  const int64_t num_elements = snapshot.num_bytes() / 4;
  absl::Status status =
      scratch->snapshots->WaitToWrite(FloatsOf(master), stream);
  if (status.ok()) {
    status = CopyToDevice(snapshot.host(), DeviceOf(master),
                          {0, num_elements * 4}, stream);
  }
  if (status.ok()) {
    status = FillState(state0, InitialState0(optimizer), stream);
  }
  if (status.ok()) status = FillState(state1, 0.0f, stream);
  if (!status.ok()) return status;
  if (narrowed_snapshot != nullptr) {
    AGG_RETURN_IF_CUDA_ERROR(LaunchNarrow(FloatsOf(master), num_elements,
                                          static_cast<int>(narrowed_dtype),
                                          narrowed, stream));
    status =
        CopyToHost(reinterpret_cast<const char*>(narrowed),
                   narrowed_snapshot->host(), {0, num_elements * 2}, stream);
    if (!status.ok()) return status;
  }
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

absl::Status ReadState(const Buffer& state, absl::Span<float> values,
                       CudaScratch* scratch) {
  const cudaStream_t stream = scratch->compute.get();
  AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(values.data(), DeviceOf(&state),
                                           values.size() * sizeof(float),
                                           cudaMemcpyDeviceToHost, stream));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

absl::Status WriteState(absl::Span<const float> values, Buffer* state,
                        CudaScratch* scratch) {
  const cudaStream_t stream = scratch->compute.get();
  const absl::Status status =
      scratch->snapshots->WaitToWrite(FloatsOf(state), stream);
  if (!status.ok()) return status;
  AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(DeviceOf(state), values.data(),
                                           values.size() * sizeof(float),
                                           cudaMemcpyHostToDevice, stream));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

}  // namespace agg::cuda
