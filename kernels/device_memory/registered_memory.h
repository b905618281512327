// Host memory that others have made, for devices to copy from and to as they do
// with pinned memory: without a copy in between, and beside the host's work.
#ifndef AGG_KERNELS_DEVICE_MEMORY_REGISTERED_MEMORY_H_
#define AGG_KERNELS_DEVICE_MEMORY_REGISTERED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_memory/device_context.h"

namespace agg {

// Locked in memory, and known to all devices of the process, while this lives.
// Thread-safe: it never changes.
class RegisteredMemory {
 public:
  // kRead: the mapping cannot be written.
  enum class Access : uint8_t { kReadWrite, kRead };

  // All of the bytes are mapped, and stay so. Takes as long as it takes to
  // touch them all. Errors as CudaDriver::Check: UNIMPLEMENTED for kRead where
  // the device has no such thing, RESOURCE_EXHAUSTED if so much cannot be
  // locked. INVALID_ARGUMENT for less than 1 byte.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(
      std::shared_ptr<const DeviceContext> context, void* data,
      int64_t num_bytes, Access access);
  // REQUIRES: no copy is under way, and the memory is mapped.
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

 private:
  RegisteredMemory(std::shared_ptr<const DeviceContext> context, void* data)
      : context_(std::move(context)), data_(data) {}

  const std::shared_ptr<const DeviceContext> context_;
  void* const data_;
};

}  // namespace agg

#endif  // AGG_KERNELS_DEVICE_MEMORY_REGISTERED_MEMORY_H_
