// State has device memory alone, a snapshot pinned host memory alone, a row
// both: the network writes its host side.
#include "kernels/cuda/cuda_buffer.h"

namespace agg::cuda {

absl::StatusOr<std::unique_ptr<CudaBuffer>> CudaBuffer::Allocate(
    BufferUse use, int64_t num_bytes, RowCopies* copies) {
  std::unique_ptr<CudaBuffer> buffer(new CudaBuffer(num_bytes, copies));
  if (use != BufferUse::kState) {
    absl::StatusOr<PinnedMemory> host = AllocatePinned(num_bytes);
    if (!host.ok()) return host.status();
    buffer->host_ = *std::move(host);
  }
  if (use != BufferUse::kSnapshot) {
    absl::StatusOr<DeviceMemory> device = AllocateDevice(num_bytes);
    if (!device.ok()) return device.status();
    buffer->device_ = *std::move(device);
  }
  if (use == BufferUse::kRow) copies->AddRow();
  return buffer;
}

CudaBuffer::~CudaBuffer() {
  // Only a row has both, and copies under way.
  if (host_ != nullptr && device_ != nullptr) copies_->Forget(host_.get());
}

}  // namespace agg::cuda
