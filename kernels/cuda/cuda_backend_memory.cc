// Buffers, and what they and computing take. Apart from the calls that compute,
// since a round is under way here, which nothing may wait for.
#include <string>

#include "kernels/cuda/complain.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_status.h"

namespace agg {
namespace {

// What a failed Allocate or Adopt means. It has given the device nothing to do
// that goes on, so the device is asked, by one of its streams, and what a round
// has given it is not waited for.
absl::Status DiagnoseAllocation(const absl::Status& status,
                                cudaStream_t stream) {
  if (!cuda::MayBeLost(status)) return status;
  const cudaError_t error = cudaStreamQuery(stream);
  return cuda::LostIf(error == cudaErrorNotReady ? cudaSuccess : error, status);
}

}  // namespace

absl::Status CudaBackend::PrepareForRows() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (copies_->num_rows() <= scratch_->many_rows) return absl::OkStatus();
  const absl::Status status = scratch_->PrepareManyRows();
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  // A cuBLAS that does not multiply is as good as none.
  cuda::Complain(std::string(status.message()) + "; hand kernels instead");
  scratch_->cublas = nullptr;
  uses_cublas_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Prepared(
    BufferUse use, absl::StatusOr<std::unique_ptr<cuda::CudaBuffer>> buffer) {
  if (!buffer.ok())
    return DiagnoseAllocation(buffer.status(), scratch_->compute.get());
  if (use == BufferUse::kSnapshot) (*buffer)->NoteCopies(scratch_->snapshots);
  if (use == BufferUse::kRow) {
    const absl::Status status = PrepareForRows();
    if (!status.ok())
      return DiagnoseAllocation(status, scratch_->compute.get());
  }
  return std::unique_ptr<Buffer>(*std::move(buffer));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Allocate(
    BufferUse use, int64_t num_bytes) {
  const absl::Status bound = cuda::BindThread(device_);
  if (!bound.ok()) return DiagnoseAllocation(bound, scratch_->compute.get());
  return Prepared(use, cuda::CudaBuffer::Allocate(use, num_bytes, copies_.get(),
                                                  *node_, sharing_.get()));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Adopt(
    BufferUse use, char* host, int64_t num_bytes, absl::Status* registered) {
  const absl::Status bound = cuda::BindThread(device_);
  if (!bound.ok()) return DiagnoseAllocation(bound, scratch_->compute.get());
  auto buffer = Prepared(
      use, cuda::CudaBuffer::Adopt(use, host, num_bytes, copies_.get(), *node_,
                                   sharing_.get(), registered));
  *registered = DiagnoseAllocation(*registered, scratch_->compute.get());
  if (absl::IsUnavailable(*registered)) return *registered;
  return buffer;
}

absl::Status CudaBackend::AwaitRows() {
  // As for RowLanded.
  cuda::BindThread(device_).IgnoreError();
  absl::Status status = copies_->Await();
  // What failed has been copied again: whether that failed, too, counts.
  if (!status.ok()) status = copies_->Await();
  return DiagnoseAllocation(status, scratch_->compute.get());
}

MemoryNeeds CudaBackend::memory_needs(int64_t num_rows) const {
  MemoryNeeds needs;
  needs.scratch_bytes = cuda::CudaScratch::HostBytes();
  needs.on_device = true;
  needs.device_scratch_bytes =
      scratch_->DeviceBytes(uses_cublas_ ? num_rows : 0);
  if (sharing_ != nullptr) needs.device_granularity = sharing_->granularity();
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
