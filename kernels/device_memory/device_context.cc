// Retains and releases; a thread's contexts are a stack.
#include "kernels/device_memory/device_context.h"

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

}  // namespace agg
