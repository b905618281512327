// Device memory that processes of one host share: made by one of them, handed
// to others as a file descriptor, mapped there. The driver frees it when the
// last mapping and the last descriptor are gone, whoever ends first.
#ifndef AGG_KERNELS_DEVICE_MEMORY_SHARED_DEVICE_MEMORY_H_
#define AGG_KERNELS_DEVICE_MEMORY_SHARED_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_memory/cuda_abi.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"

namespace agg {

// A mapping, which ends with the object. Thread-safe: it never changes.
class SharedDeviceMemory {
 public:
  // What an allocation on the device is rounded up to, some MiB. Errors as
  // CudaDriver::Check.
  static absl::StatusOr<int64_t> Granularity(const DeviceContext& context);

  // Memory on the context's device, not cleared. INVALID_ARGUMENT for less than
  // 1 byte; UNIMPLEMENTED: the device's memory cannot be shared;
  // RESOURCE_EXHAUSTED with the size; else as CudaDriver::Check.
  static absl::StatusOr<std::unique_ptr<SharedDeviceMemory>> Create(
      std::shared_ptr<const DeviceContext> context, int64_t num_bytes);

  // Maps what another process, or this one, has created, for use by the
  // context's device: the memory's own or a peer of it. `num_bytes` of
  // `mapped_bytes` are used. `fd` stays the caller's and is not needed
  // afterwards. INVALID_ARGUMENT for sizes that do not fit each other or the
  // device; else as CudaDriver::Check, for a descriptor of something else, of
  // less memory, or of memory that the device cannot reach.
  static absl::StatusOr<std::unique_ptr<SharedDeviceMemory>> Map(
      std::shared_ptr<const DeviceContext> context, int fd, int64_t num_bytes,
      int64_t mapped_bytes);

  // REQUIRES: no work of this process on it is under way: unmapping is not
  // known to wait for kernels, as freeing plain memory does.
  ~SharedDeviceMemory();
  SharedDeviceMemory(const SharedDeviceMemory&) = delete;
  SharedDeviceMemory& operator=(const SharedDeviceMemory&) = delete;

  char* data() const { return data_; }  // an address of the device
  int64_t num_bytes() const { return num_bytes_; }
  int64_t mapped_bytes() const { return mapped_bytes_; }
  // Descriptor to be handed out; below 0 for what was mapped.
  int fd() const { return fd_; }

 private:
  SharedDeviceMemory(std::shared_ptr<const DeviceContext> context,
                     int64_t num_bytes, int64_t mapped_bytes)
      : context_(std::move(context)),
        num_bytes_(num_bytes),
        mapped_bytes_(mapped_bytes) {}

  // Gives the memory an address that the device may read and write.
  absl::Status MapHandle(cuda_abi::Handle handle);

  const std::shared_ptr<const DeviceContext> context_;
  const int64_t num_bytes_;
  const int64_t mapped_bytes_;
  char* data_ = nullptr;  // the reserved address
  bool is_mapped_ = false;
  int fd_ = -1;
};

}  // namespace agg

#endif  // AGG_KERNELS_DEVICE_MEMORY_SHARED_DEVICE_MEMORY_H_
