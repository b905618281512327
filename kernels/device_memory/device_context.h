// A device's primary context, the one that CUDA's runtime uses, and so PyTorch,
// JAX and the CUDA backend; and host memory that is registered with it.
#ifndef AGG_KERNELS_DEVICE_MEMORY_DEVICE_CONTEXT_H_
#define AGG_KERNELS_DEVICE_MEMORY_DEVICE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_memory/cuda_abi.h"
#include "kernels/device_memory/cuda_driver.h"

namespace agg {

// Keeps the context alive. Thread-safe.
class DeviceContext {
 public:
  // Errors as CudaDriver::Check. Makes the context if nobody has: some hundred
  // MiB of the device's memory and some hundred milliseconds.
  static absl::StatusOr<std::shared_ptr<const DeviceContext>> Retain(
      std::shared_ptr<const CudaDriver> driver, int device);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  int device() const { return device_; }
  cuda_abi::Context get() const { return context_; }

 private:
  DeviceContext(std::shared_ptr<const CudaDriver> driver, int device,
                cuda_abi::Context context)
      : driver_(std::move(driver)), device_(device), context_(context) {}

  const std::shared_ptr<const CudaDriver> driver_;
  const int device_;
  const cuda_abi::Context context_;
};

// Makes a context the calling thread's current one, until the end of the
// scope, which restores the one before: what the thread's owner, PyTorch say,
// has chosen. Meanwhile another thread may capture a CUDA graph: without this
// the driver refuses this thread's calls meanwhile, and ends that capture.
class CurrentContext {
 public:
  // `context` outlives it.
  explicit CurrentContext(const DeviceContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  // Whether it is current; as CudaDriver::Check.
  const absl::Status& status() const { return status_; }

 private:
  const DeviceContext& context_;
  const absl::Status status_;
  int capture_mode_;  // the thread's own, while this lives
};

// Host memory that others have made, for devices to copy from and to as they do
// with pinned memory: without a copy in between, and beside the host's work.
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

#endif  // AGG_KERNELS_DEVICE_MEMORY_DEVICE_CONTEXT_H_
