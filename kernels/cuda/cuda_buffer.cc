// State has device memory alone, a snapshot pinned host memory alone, a row
// both: the network writes its host side.
#include "kernels/cuda/cuda_buffer.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/numa_node.h"

namespace agg::cuda {

absl::StatusOr<std::unique_ptr<const DeviceSharing>> DeviceSharing::Start(
    const std::string& driver_path, int device) {
  auto driver = CudaDriver::Load(driver_path);
  if (!driver.ok()) return driver.status();
  const absl::Status shares = (*driver)->CheckShares(device);
  if (!shares.ok()) return shares;
  const absl::StatusOr<DeviceUuid> uuid = (*driver)->UuidOf(device);
  if (!uuid.ok()) return uuid.status();
  auto context = DeviceContext::Retain(*std::move(driver), device);
  if (!context.ok()) return context.status();
  const CurrentContext current(**context);
  if (!current.status().ok()) return current.status();
  const absl::StatusOr<int64_t> granularity =
      SharedDeviceMemory::Granularity(**context);
  if (!granularity.ok()) return granularity.status();
  return absl::WrapUnique(
      new const DeviceSharing(*std::move(context), *uuid, *granularity));
}

void UnmapIdle::operator()(SharedDeviceMemory* memory) const {
  // After an error, of a lost device say, nothing is under way.
  if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
  delete memory;
}

absl::StatusOr<DeviceSide> DeviceSide::Allocate(int64_t num_bytes,
                                                const DeviceSharing* sharing) {
  DeviceSide side;
  if (sharing != nullptr && num_bytes > 0) {
    auto shared = SharedDeviceMemory::Create(sharing->context(), num_bytes);
    if (shared.ok()) {
      side.shared_.reset(shared->release());
      const absl::Status cleared = ClearDevice(side.data(), num_bytes);
      if (!cleared.ok()) return cleared;
      side.share_ = {side.shared_->fd(), side.shared_->mapped_bytes(),
                     sharing->uuid()};
      return side;
    }
    Complain(std::string(shared.status().message()) + "; " +
             std::to_string(num_bytes) +
             " bytes of device memory are private instead");
  }
  absl::StatusOr<DeviceMemory> plain = AllocateDevice(num_bytes);
  if (!plain.ok()) return plain.status();
  side.plain_ = *std::move(plain);
  return side;
}

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
