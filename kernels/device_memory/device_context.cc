// Retains and releases; a thread's contexts are a stack. Registers memory of
// others with the driver.
#include "kernels/device_memory/device_context.h"

#include <cstddef>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory/cuda_abi.h"
#include "kernels/device_memory/cuda_driver.h"

namespace agg {

absl::StatusOr<std::shared_ptr<const DeviceContext>> DeviceContext::Retain(
    std::shared_ptr<const CudaDriver> driver, int device) {
  int handle = 0;
  absl::Status status =
      driver->Check(driver->call().cuDeviceGet(&handle, device), "cuDeviceGet");
  if (!status.ok()) return status;
  cuda_abi::Context context = nullptr;
  status =
      driver->Check(driver->call().cuDevicePrimaryCtxRetain(&context, handle),
                    "cuDevicePrimaryCtxRetain");
  if (!status.ok()) return status;
  return std::shared_ptr<const DeviceContext>(
      new DeviceContext(std::move(driver), device, context));
}

DeviceContext::~DeviceContext() {
  int handle = 0;
  if (driver_->call().cuDeviceGet(&handle, device_) == cuda_abi::kSuccess) {
    driver_->call().cuDevicePrimaryCtxRelease_v2(handle);
  }
}

CurrentContext::CurrentContext(const DeviceContext& context)
    : context_(context),
      status_(context.driver().Check(
          context.driver().call().cuCtxPushCurrent_v2(context.get()),
          "cuCtxPushCurrent")),
      capture_mode_(cuda_abi::kCaptureModeThreadLocal) {
  if (status_.ok()) {
    context_.driver().call().cuThreadExchangeStreamCaptureMode(&capture_mode_);
  }
}

CurrentContext::~CurrentContext() {
  if (!status_.ok()) return;
  cuda_abi::Context popped = nullptr;
  context_.driver().call().cuThreadExchangeStreamCaptureMode(&capture_mode_);
  context_.driver().call().cuCtxPopCurrent_v2(&popped);
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Register(
    std::shared_ptr<const DeviceContext> context, void* data, int64_t num_bytes,
    Access access) {
  if (num_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_bytes is ", num_bytes, "; allowed: at least 1"));
  }
  const CurrentContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& driver = context->driver();
  const unsigned flags =
      cuda_abi::kRegisterPortable |
      (access == Access::kRead ? cuda_abi::kRegisterReadOnly : 0u);
  const int code = driver.call().cuMemHostRegister_v2(
      data, static_cast<size_t>(num_bytes), flags);
  const absl::Status status = driver.Check(
      code, absl::StrCat("cuMemHostRegister of ", num_bytes, " bytes"));
  if (!status.ok()) return status;
  return absl::WrapUnique(new RegisteredMemory(std::move(context), data));
}

RegisteredMemory::~RegisteredMemory() {
  const CurrentContext current(*context_);
  if (!current.status().ok()) return;
  context_->driver().call().cuMemHostUnregister(data_);
}

}  // namespace agg
