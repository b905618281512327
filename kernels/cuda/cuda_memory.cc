// The calls that allocate. Memory that has run out is RESOURCE_EXHAUSTED,
// with the number of bytes.
#include "kernels/cuda/cuda_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/device_memory/device_stream.h"

namespace agg::cuda {

absl::StatusOr<DeviceMemory> AllocateDevice(int64_t num_bytes) {
  if (num_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes"));
  }
  // Whole units of the kernels' asynchronous copies: of one's last bytes the
  // device reads no more than it is asked for, but compute-sanitizer's memcheck
  // takes it for all 16.
  const auto size =
      (static_cast<size_t>(std::max<int64_t>(num_bytes, 1)) + 15) & ~size_t{15};
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, size);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky; forget it
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot allocate ", num_bytes, " bytes of device memory; free are ",
        free_bytes, " of ", total_bytes));
  }
  if (absl::Status status = CudaStatus(error, "cudaMalloc", __FILE__, __LINE__);
      !status.ok())
    return status;
  DeviceMemory owner(static_cast<char*>(memory));
  const absl::Status cleared =
      ClearDevice(owner.get(), static_cast<int64_t>(size));
  if (!cleared.ok()) return cleared;
  return owner;
}

absl::Status ClearDevice(char* memory, int64_t num_bytes) {
  // On a stream of its own: rounds go on meanwhile, and are not waited for.
  absl::StatusOr<Stream> clearing = MakeStream();
  if (!clearing.ok()) return clearing.status();
  AGG_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(
      memory, 0, static_cast<size_t>(num_bytes), clearing->get()));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(clearing->get()));
  return absl::OkStatus();
}

absl::StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  AGG_RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

namespace {

// `query` answers at once, `wait` when all is done.
template <class Query, class Wait>
cudaError_t AskThenWait(const Query& query, const Wait& wait) {
  for (int i = 0; i < kQuestionsBeforeSleep; ++i) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return error;
    cudaGetLastError();  // it is none, and must not spoil later calls
  }
  return wait();
}

}  // namespace

cudaError_t Await(cudaStream_t stream) {
  return AskThenWait([&] { return cudaStreamQuery(stream); },
                     [&] { return cudaStreamSynchronize(stream); });
}

cudaError_t Await(cudaEvent_t event) {
  return AskThenWait([&] { return cudaEventQuery(event); },
                     [&] { return cudaEventSynchronize(event); });
}

absl::StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  AGG_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(
      &event, cudaEventDisableTiming | cudaEventBlockingSync));
  return Event(event);
}

}  // namespace agg::cuda
