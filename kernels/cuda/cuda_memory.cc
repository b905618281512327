// The calls that allocate. Memory that has run out is RESOURCE_EXHAUSTED,
// with the number of bytes.
#include "kernels/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace agg::cuda {
namespace {

absl::Status CheckSize(int64_t num_bytes) {
  if (num_bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot allocate ", num_bytes, " bytes"));
}

}  // namespace

absl::StatusOr<DeviceMemory> AllocateDevice(int64_t num_bytes) {
  if (absl::Status status = CheckSize(num_bytes); !status.ok()) return status;
  const auto size = static_cast<size_t>(std::max<int64_t>(num_bytes, 1));
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
  AGG_RETURN_IF_CUDA_ERROR(cudaMemset(memory, 0, size));
  // cudaMemset of device memory need not be done when it returns, and streams
  // here do not wait for the default stream.
  AGG_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return owner;
}

absl::StatusOr<PinnedMemory> AllocatePinned(int64_t num_bytes) {
  if (absl::Status status = CheckSize(num_bytes); !status.ok()) return status;
  const auto size = static_cast<size_t>(std::max<int64_t>(num_bytes, 1));
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, size, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot allocate ", num_bytes, " bytes of pinned host memory"));
  }
  if (absl::Status status =
          CudaStatus(error, "cudaHostAlloc", __FILE__, __LINE__);
      !status.ok())
    return status;
  std::memset(memory, 0, size);
  return PinnedMemory(static_cast<char*>(memory));
}

absl::StatusOr<RegisteredMemory> RegisterHost(char* memory, int64_t num_bytes) {
  const cudaError_t error = cudaHostRegister(
      memory, static_cast<size_t>(num_bytes), cudaHostRegisterDefault);
  if (error == cudaSuccess) return RegisteredMemory(memory);
  cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot pin ", num_bytes, " bytes of host memory for the device"));
  }
  return CudaStatus(error, "cudaHostRegister", __FILE__, __LINE__);
}

absl::StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  AGG_RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

absl::StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  AGG_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(
      &event, cudaEventDisableTiming | cudaEventBlockingSync));
  return Event(event);
}

}  // namespace agg::cuda
