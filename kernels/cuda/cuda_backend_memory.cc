// Buffers, and what they and computing take. Apart from the calls that compute,
// since a round is under way here, which nothing may wait for.
#include <cstdio>
#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_status.h"

namespace agg {

absl::Status CudaBackend::PrepareForRows() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (copies_->num_rows() <= cuda::kManyRows) return absl::OkStatus();
  const absl::Status status = scratch_->PrepareManyRows();
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  // A cuBLAS that does not multiply is as good as none.
  std::fprintf(stderr, "%s; hand kernels instead\n",
               std::string(status.message()).c_str());
  scratch_->cublas = nullptr;
  uses_cublas_ = false;
  return absl::OkStatus();
}

absl::Status CudaBackend::DiagnoseAllocation(const absl::Status& status) {
  if (!cuda::MayBeLost(status)) return status;
  const cudaError_t error = cudaStreamQuery(scratch_->compute.get());
  return cuda::LostIf(error == cudaErrorNotReady ? cudaSuccess : error, status);
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Prepared(
    BufferUse use, absl::StatusOr<std::unique_ptr<cuda::CudaBuffer>> buffer) {
  if (!buffer.ok()) return DiagnoseAllocation(buffer.status());
  if (use == BufferUse::kRow) {
    const absl::Status status = PrepareForRows();
    if (!status.ok()) return DiagnoseAllocation(status);
  }
  return std::unique_ptr<Buffer>(*std::move(buffer));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Allocate(
    BufferUse use, int64_t num_bytes) {
  const absl::Status bound = cuda::BindThread(device_);
  if (!bound.ok()) return DiagnoseAllocation(bound);
  return Prepared(use,
                  cuda::CudaBuffer::Allocate(use, num_bytes, copies_.get()));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Adopt(
    BufferUse use, char* host, int64_t num_bytes, absl::Status* registered) {
  const absl::Status bound = cuda::BindThread(device_);
  if (!bound.ok()) return DiagnoseAllocation(bound);
  auto buffer = Prepared(
      use,
      cuda::CudaBuffer::Adopt(use, host, num_bytes, copies_.get(), registered));
  *registered = DiagnoseAllocation(*registered);
  if (absl::IsUnavailable(*registered)) return *registered;
  return buffer;
}

MemoryNeeds CudaBackend::memory_needs(int64_t num_rows) const {
  MemoryNeeds needs;
  needs.scratch_bytes = cuda::CudaScratch::HostBytes();
  needs.on_device = true;
  needs.device_scratch_bytes =
      cuda::CudaScratch::DeviceBytes(uses_cublas_ ? num_rows : 0);
  return needs;
}

DeviceMemoryUse CudaBackend::device_memory_use() const {
  size_t free_bytes = 0, total_bytes = 0;
  if (!cuda::BindThread(device_).ok() ||
      cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return {static_cast<int64_t>(total_bytes),
          static_cast<int64_t>(total_bytes - free_bytes)};
}

}  // namespace agg
