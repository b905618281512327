// Shared memory is the driver's, plain memory the runtime's; both are cleared
// in the same way.
#include "kernels/cuda/device_side.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "kernels/cuda/complain.h"

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

}  // namespace agg::cuda
