// An allocation has a handle, which is released as soon as it is mapped: the
// mapping and the descriptor keep the memory.
#include "kernels/device_memory/shared_device_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <limits>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

cuda_abi::AllocationProp PropOf(const DeviceContext& context) {
  cuda_abi::AllocationProp prop = {};
  prop.type = cuda_abi::kAllocationTypePinned;
  prop.requested_handle_types = cuda_abi::kHandleTypePosixFileDescriptor;
  prop.location = {cuda_abi::kLocationTypeDevice, context.device()};
  return prop;
}

// Releases a handle at the end of a scope.
class OwnedHandle {
 public:
  OwnedHandle(const CudaDriver& driver, cuda_abi::Handle handle)
      : driver_(driver), handle_(handle) {}
  ~OwnedHandle() { driver_.call().cuMemRelease(handle_); }
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;

  cuda_abi::Handle get() const { return handle_; }

 private:
  const CudaDriver& driver_;
  const cuda_abi::Handle handle_;
};

absl::StatusOr<cuda_abi::Handle> CreateHandle(const DeviceContext& context,
                                              int64_t num_bytes) {
  const CudaDriver& driver = context.driver();
  const cuda_abi::AllocationProp prop = PropOf(context);
  cuda_abi::Handle handle = 0;
  const absl::Status status =
      driver.Check(driver.call().cuMemCreate(
                       &handle, static_cast<size_t>(num_bytes), &prop, 0),
                   absl::StrCat("cuMemCreate of ", num_bytes, " bytes"));
  if (!status.ok()) return status;
  return handle;
}

// A child of this process is not to have it.
absl::StatusOr<int> Export(const CudaDriver& driver, cuda_abi::Handle handle) {
  int fd = -1;
  const absl::Status status =
      driver.Check(driver.call().cuMemExportToShareableHandle(
                       &fd, handle, cuda_abi::kHandleTypePosixFileDescriptor,
                       /*flags=*/0),
                   "cuMemExportToShareableHandle");
  if (!status.ok()) return status;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace

absl::StatusOr<int64_t> SharedDeviceMemory::Granularity(
    const DeviceContext& context) {
  const CudaDriver& driver = context.driver();
  const cuda_abi::AllocationProp prop = PropOf(context);
  size_t granularity = 0;
  const absl::Status status =
      driver.Check(driver.call().cuMemGetAllocationGranularity(
                       &granularity, &prop, cuda_abi::kGranularityMinimum),
                   "cuMemGetAllocationGranularity");
  if (!status.ok()) return status;
  if (granularity == 0 || granularity > size_t{1} << 40) {
    return absl::InternalError(absl::StrCat(
        "CUDA driver: an allocation granularity of ", granularity, " bytes"));
  }
  return static_cast<int64_t>(granularity);
}

absl::StatusOr<std::unique_ptr<SharedDeviceMemory>> SharedDeviceMemory::Create(
    std::shared_ptr<const DeviceContext> context, int64_t num_bytes) {
  if (num_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot allocate ", num_bytes, " bytes of shared device memory"));
  }
  const CudaDriver& driver = context->driver();
  const CurrentContext current(*context);
  absl::Status status = current.status();
  if (status.ok()) status = driver.CheckShares(context->device());
  if (!status.ok()) return status;
  const absl::StatusOr<int64_t> granularity = Granularity(*context);
  if (!granularity.ok()) return granularity.status();
  if (num_bytes > std::numeric_limits<int64_t>::max() - *granularity) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes of device memory"));
  }
  const int64_t mapped_bytes =
      (num_bytes + *granularity - 1) / *granularity * *granularity;
  const auto created = CreateHandle(*context, mapped_bytes);
  if (!created.ok()) return created.status();
  const OwnedHandle handle(driver, *created);
  std::unique_ptr<SharedDeviceMemory> memory(
      new SharedDeviceMemory(std::move(context), num_bytes, mapped_bytes));
  const absl::StatusOr<int> fd = Export(driver, handle.get());
  if (!fd.ok()) return fd.status();
  memory->fd_ = *fd;
  status = memory->MapHandle(handle.get());
  if (!status.ok()) return status;
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedDeviceMemory>> SharedDeviceMemory::Map(
    std::shared_ptr<const DeviceContext> context, int fd, int64_t num_bytes,
    int64_t mapped_bytes) {
  const CudaDriver& driver = context->driver();
  const CurrentContext current(*context);
  if (!current.status().ok()) return current.status();
  const absl::StatusOr<int64_t> granularity = Granularity(*context);
  if (!granularity.ok()) return granularity.status();
  if (num_bytes < 1 || mapped_bytes < num_bytes ||
      mapped_bytes % *granularity != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot map ", mapped_bytes, " bytes of shared device memory for ",
        num_bytes, "; allowed: at least as many, a multiple of ",
        *granularity));
  }
  cuda_abi::Handle imported = 0;
  absl::Status status =
      driver.Check(driver.call().cuMemImportFromShareableHandle(
                       &imported, reinterpret_cast<void*>(intptr_t{fd}),
                       cuda_abi::kHandleTypePosixFileDescriptor),
                   "cuMemImportFromShareableHandle");
  if (!status.ok()) return status;
  const OwnedHandle handle(driver, imported);
  std::unique_ptr<SharedDeviceMemory> memory(
      new SharedDeviceMemory(std::move(context), num_bytes, mapped_bytes));
  status = memory->MapHandle(handle.get());
  if (!status.ok()) return status;
  return memory;
}

absl::Status SharedDeviceMemory::MapHandle(cuda_abi::Handle handle) {
  const CudaDriver& driver = context_->driver();
  const auto size = static_cast<size_t>(mapped_bytes_);
  cuda_abi::Pointer pointer = 0;
  absl::Status status =
      driver.Check(driver.call().cuMemAddressReserve(&pointer, size,
                                                     /*alignment=*/0,
                                                     /*address=*/0, 0),
                   absl::StrCat("cuMemAddressReserve of ", size, " bytes"));
  if (!status.ok()) return status;
  data_ = reinterpret_cast<char*>(pointer);
  status =
      driver.Check(driver.call().cuMemMap(pointer, size, /*offset=*/0, handle,
                                          /*flags=*/0),
                   absl::StrCat("cuMemMap of ", size, " bytes"));
  if (!status.ok()) return status;
  is_mapped_ = true;
  const cuda_abi::AccessDesc access = {
      {cuda_abi::kLocationTypeDevice, context_->device()},
      cuda_abi::kAccessReadWrite};
  return driver.Check(
      driver.call().cuMemSetAccess(pointer, size, &access, 1),
      absl::StrCat("cuMemSetAccess for device ", context_->device()));
}

SharedDeviceMemory::~SharedDeviceMemory() {
  const CurrentContext current(*context_);
  const auto pointer = reinterpret_cast<cuda_abi::Pointer>(data_);
  const auto size = static_cast<size_t>(mapped_bytes_);
  const cuda_abi::Functions& call = context_->driver().call();
  if (is_mapped_) call.cuMemUnmap(pointer, size);
  if (data_ != nullptr) call.cuMemAddressFree(pointer, size);
  if (fd_ >= 0) close(fd_);
}

}  // namespace agg
