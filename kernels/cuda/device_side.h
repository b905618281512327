// The part of a buffer that is on the device.
#ifndef AGG_KERNELS_CUDA_DEVICE_SIDE_H_
#define AGG_KERNELS_CUDA_DEVICE_SIDE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/buffer.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"

namespace agg::cuda {

// How a device's memory is made such that other processes can map it.
// Thread-safe: it never changes.
class DeviceSharing {
 public:
  // `driver_path`: as CudaDriver::Load. An error says why it cannot be:
  // UNIMPLEMENTED if the driver or the device is not made for it, else as
  // CudaDriver::Load. REQUIRES: the runtime uses the device already.
  static absl::StatusOr<std::unique_ptr<const DeviceSharing>> Start(
      const std::string& driver_path, int device);

  const std::shared_ptr<const DeviceContext>& context() const {
    return context_;
  }
  const DeviceUuid& uuid() const { return uuid_; }
  // What each piece of memory is rounded up to.
  int64_t granularity() const { return granularity_; }

 private:
  DeviceSharing(std::shared_ptr<const DeviceContext> context,
                const DeviceUuid& uuid, int64_t granularity)
      : context_(std::move(context)), uuid_(uuid), granularity_(granularity) {}

  const std::shared_ptr<const DeviceContext> context_;
  const DeviceUuid uuid_;
  const int64_t granularity_;
};

// Waits for all that the calling thread's device has to do, then unmaps, which
// by itself need not wait for kernels that use the memory: as safe as cudaFree.
// For the shard alone: a worker would wait for its framework's work.
struct UnmapIdle {
  void operator()(SharedDeviceMemory* memory) const;
};

// Zero-filled memory, plain or shared; empty when default. REQUIRES: it ends on
// a thread whose device is its own.
class DeviceSide {
 public:
  // On the calling thread's device, which `sharing`, if any, is of. Memory that
  // cannot be shared, though the device's can, is plain, with a line on
  // stderr. Errors as AllocateDevice.
  static absl::StatusOr<DeviceSide> Allocate(int64_t num_bytes,
                                             const DeviceSharing* sharing);

  char* data() const {
    return shared_ != nullptr ? shared_->data() : plain_.get();
  }
  const DeviceShare* share() const {
    return shared_ != nullptr ? &share_ : nullptr;
  }

 private:
  DeviceMemory plain_;
  std::unique_ptr<SharedDeviceMemory, UnmapIdle> shared_;
  DeviceShare share_;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_DEVICE_SIDE_H_
