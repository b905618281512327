#include "kernels/device_memory/registered_memory.h"

#include <cstddef>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory/cuda_abi.h"
#include "kernels/device_memory/cuda_driver.h"

namespace agg {

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
