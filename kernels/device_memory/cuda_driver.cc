// Finds the driver's file and its functions, and puts its codes into words.
#include "kernels/device_memory/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// The driver's own name, to which its file's name is a link everywhere.
constexpr const char* kFile = "libcuda.so.1";
constexpr const char* kFileVariable = "AGG_CUDA_DRIVER";

std::string FileOfEnvironment() {
  const char* const path = std::getenv(kFileVariable);
  return path == nullptr ? "" : path;
}

absl::Status LacksFunction(const std::string& path, const char* name) {
  return absl::UnimplementedError(
      absl::StrCat("the CUDA driver ", path, " has no ", name));
}

absl::StatusOr<cuda_abi::Functions> FindFunctions(void* library,
                                                  const std::string& path) {
  cuda_abi::Functions found;
#define AGG_CUDA_FIND(name, parameters)                                       \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, #name)); \
  if (found.name == nullptr) return LacksFunction(path, #name);
  AGG_CUDA_FUNCTIONS(AGG_CUDA_FIND)
#undef AGG_CUDA_FIND
  for (const char* name : {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}) {
    found.get_uuid =
        reinterpret_cast<cuda_abi::UuidFunction*>(dlsym(library, name));
    if (found.get_uuid != nullptr) return found;
  }
  return LacksFunction(path, "cuDeviceGetUuid");
}

}  // namespace

std::string FormatUuid(const DeviceUuid& uuid) {
  const std::string digits = absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(uuid.data()), uuid.size()));
  const absl::string_view view = digits;
  return absl::StrCat("GPU-", view.substr(0, 8), "-", view.substr(8, 4), "-",
                      view.substr(12, 4), "-", view.substr(16, 4), "-",
                      view.substr(20));
}

absl::StatusOr<std::shared_ptr<const CudaDriver>> CudaDriver::Open(
    const std::string& path, int flags) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
  if (library == nullptr) {
    const char* const error = dlerror();
    return absl::NotFoundError(absl::StrCat(
        "no CUDA driver: ", error == nullptr ? path.c_str() : error));
  }
  const absl::StatusOr<cuda_abi::Functions> functions =
      FindFunctions(library, path);
  if (!functions.ok()) return functions.status();
  return std::shared_ptr<const CudaDriver>(new CudaDriver(path, *functions));
}

absl::StatusOr<std::shared_ptr<const CudaDriver>> CudaDriver::Load(
    const std::string& path) {
  std::string file = path.empty() ? FileOfEnvironment() : path;
  if (file.empty()) file = kFile;
  absl::StatusOr<std::shared_ptr<const CudaDriver>> driver =
      Open(file, /*flags=*/0);
  if (!driver.ok()) return driver;
  const absl::Status status =
      (*driver)->Check((*driver)->call().cuInit(0), "cuInit");
  if (!status.ok()) return status;
  return driver;
}

std::shared_ptr<const CudaDriver> CudaDriver::FindLoaded() {
  static std::mutex& mutex = *new std::mutex;
  static auto& found = *new std::shared_ptr<const CudaDriver>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (found == nullptr) {
    const std::string named = FileOfEnvironment();
    const auto driver =
        named.empty() ? Open(kFile, RTLD_NOLOAD) : Open(named, /*flags=*/0);
    if (driver.ok()) found = *driver;
  }
  return found;
}

absl::Status CudaDriver::Check(int code, absl::string_view call) const {
  if (code == cuda_abi::kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  if (functions_.cuGetErrorName(code, &name) != cuda_abi::kSuccess ||
      name == nullptr) {
    name = "an error that it has no name for";
  }
  const std::string message =
      absl::StrCat("CUDA driver: ", name, " (", code, ") from ", call);
  switch (code) {
    case cuda_abi::kOutOfMemory:
      return absl::ResourceExhaustedError(message);
    case cuda_abi::kNotSupported:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<int> CudaDriver::NumDevices() const {
  int count = 0;
  const absl::Status status =
      Check(functions_.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (!status.ok()) return status;
  return count;
}

absl::StatusOr<DeviceUuid> CudaDriver::UuidOf(int device) const {
  int handle = 0;
  absl::Status status =
      Check(functions_.cuDeviceGet(&handle, device), "cuDeviceGet");
  if (!status.ok()) return status;
  cuda_abi::Uuid bytes = {};
  status = Check(functions_.get_uuid(&bytes, handle), "cuDeviceGetUuid");
  if (!status.ok()) return status;
  DeviceUuid uuid;
  static_assert(sizeof(uuid) == sizeof(bytes.bytes));
  std::memcpy(uuid.data(), bytes.bytes, sizeof(uuid));
  return uuid;
}

absl::StatusOr<int> CudaDriver::DeviceWith(const DeviceUuid& uuid) const {
  const absl::StatusOr<int> count = NumDevices();
  if (!count.ok()) return count.status();
  for (int device = 0; device < *count; ++device) {
    const absl::StatusOr<DeviceUuid> own = UuidOf(device);
    if (!own.ok()) return own.status();
    if (*own == uuid) return device;
  }
  return absl::NotFoundError(absl::StrCat(
      "none of ", *count, " visible CUDA devices is ", FormatUuid(uuid)));
}

absl::StatusOr<int> CudaDriver::Attribute(int attribute, int device) const {
  int handle = 0, value = 0;
  absl::Status status =
      Check(functions_.cuDeviceGet(&handle, device), "cuDeviceGet");
  if (!status.ok()) return status;
  status = Check(functions_.cuDeviceGetAttribute(&value, attribute, handle),
                 absl::StrCat("cuDeviceGetAttribute of attribute ", attribute));
  if (!status.ok()) return status;
  return value;
}

absl::Status CudaDriver::CheckShares(int device) const {
  const std::pair<int, const char*> needs[] = {
      {cuda_abi::kVirtualMemoryManagementSupported,
       "virtual memory management"},
      {cuda_abi::kPosixFileDescriptorSupported,
       "memory that is exported as a file descriptor"}};
  for (const auto& [attribute, words] : needs) {
    const absl::StatusOr<int> value = Attribute(attribute, device);
    if (!value.ok()) return value.status();
    if (*value == 0) {
      return absl::UnimplementedError(
          absl::StrCat("CUDA device ", device, " does not support ", words));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int>> CudaDriver::DeviceOf(
    const void* address) const {
  const auto pointer = reinterpret_cast<cuda_abi::Pointer>(address);
  unsigned type = 0;
  const int code = functions_.cuPointerGetAttribute(
      &type, cuda_abi::kPointerMemoryType, pointer);
  // What it says of plain memory of the host.
  if (code == cuda_abi::kInvalidValue || code == cuda_abi::kNotInitialized) {
    return std::nullopt;
  }
  absl::Status status = Check(code, "cuPointerGetAttribute");
  if (!status.ok()) return status;
  if (type != cuda_abi::kMemoryTypeDevice) return std::nullopt;
  int device = 0;
  status = Check(functions_.cuPointerGetAttribute(
                     &device, cuda_abi::kPointerDeviceOrdinal, pointer),
                 "cuPointerGetAttribute");
  if (!status.ok()) return status;
  return device;
}

}  // namespace agg
