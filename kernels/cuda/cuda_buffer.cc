// State has device memory alone, a snapshot pinned host memory alone, a row
// both: the network writes its host side.
#include "kernels/cuda/cuda_buffer.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg::cuda {

absl::StatusOr<std::unique_ptr<CudaBuffer>> CudaBuffer::Allocate(
    BufferUse use, int64_t num_bytes, RowCopies* copies, const NumaNode& node,
    const DeviceSharing* sharing) {
  std::unique_ptr<CudaBuffer> buffer(new CudaBuffer(num_bytes, copies));
  if (use != BufferUse::kState) {
    absl::StatusOr<PinnedMemory> host = AllocatePinned(num_bytes, node);
    if (!host.ok()) return host.status();
    buffer->pinned_ = *std::move(host);
    buffer->host_ = buffer->pinned_.get();
  }
  const absl::Status status = buffer->AllocateDeviceSide(use, sharing);
  if (!status.ok()) return status;
  return buffer;
}

absl::StatusOr<std::unique_ptr<CudaBuffer>> CudaBuffer::Adopt(
    BufferUse use, char* host, int64_t num_bytes, RowCopies* copies,
    const NumaNode& node, const DeviceSharing* sharing,
    absl::Status* registered) {
  if (use == BufferUse::kState || num_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot adopt ", num_bytes, " bytes",
                     use == BufferUse::kState ? " of state" : ""));
  }
  std::unique_ptr<CudaBuffer> buffer(new CudaBuffer(num_bytes, copies));
  node.Prefer(host, num_bytes);
  absl::StatusOr<RegisteredMemory> memory = RegisterHost(host, num_bytes);
  *registered = memory.status();
  if (memory.ok()) buffer->registered_ = *std::move(memory);
  const absl::Status status = buffer->AllocateDeviceSide(use, sharing);
  if (!status.ok()) return status;
  buffer->host_ = host;
  return buffer;
}

// Once the row has its device side, it counts until its end.
absl::Status CudaBuffer::AllocateDeviceSide(BufferUse use,
                                            const DeviceSharing* sharing) {
  if (use == BufferUse::kSnapshot) return absl::OkStatus();
  absl::StatusOr<DeviceSide> device = DeviceSide::Allocate(num_bytes_, sharing);
  if (!device.ok()) return device.status();
  device_ = *std::move(device);
  if (use == BufferUse::kRow) copies_->AddRow();
  return absl::OkStatus();
}

CudaBuffer::CudaBuffer(int64_t num_bytes, RowCopies* copies)
    : num_bytes_(num_bytes), copies_(copies) {
  cudaGetDevice(&device_number_);
}

CudaBuffer::~CudaBuffer() {
  cudaSetDevice(device_number_);
  // Only a row has both, and copies under way.
  if (host_ != nullptr && device_.data() != nullptr) copies_->Forget(host_);
  const std::shared_ptr<SnapshotCopies> snapshots = snapshots_.lock();
  if (snapshots != nullptr) snapshots->Forget(host_);
}

}  // namespace agg::cuda
