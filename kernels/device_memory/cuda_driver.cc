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

// As cuPointerGetAttribute; a thread without a context asks in those of the
// devices that are in use. (Drivers answer without, as far as is known; their
// documentation lets them refuse.)
int PointerAttribute(const cuda_abi::Functions& call, void* data, int attribute,
                     cuda_abi::Pointer pointer) {
  int code = call.cuPointerGetAttribute(data, attribute, pointer);
  int count = 0;
  if (code != cuda_abi::kInvalidContext ||
      call.cuDeviceGetCount(&count) != cuda_abi::kSuccess) {
    return code;
  }
  bool any_in_use = false;
  for (int device = 0; device < count; ++device) {
    int handle = 0, in_use = 0;
    unsigned flags = 0;
    cuda_abi::Context context = nullptr, popped = nullptr;
    if (call.cuDeviceGet(&handle, device) != cuda_abi::kSuccess ||
        call.cuDevicePrimaryCtxGetState(handle, &flags, &in_use) !=
            cuda_abi::kSuccess ||
        in_use == 0 ||
        call.cuDevicePrimaryCtxRetain(&context, handle) != cuda_abi::kSuccess) {
      continue;
    }
    any_in_use = true;
    if (call.cuCtxPushCurrent_v2(context) == cuda_abi::kSuccess) {
      code = call.cuPointerGetAttribute(data, attribute, pointer);
      call.cuCtxPopCurrent_v2(&popped);
    }
    call.cuDevicePrimaryCtxRelease_v2(handle);
    if (code != cuda_abi::kInvalidContext) return code;
  }
  return any_in_use ? code : cuda_abi::kInvalidValue;
}

// What the driver says of plain memory of the host, and to processes that have
// no device to use.
bool IsOfTheHost(int code) {
  return code == cuda_abi::kInvalidValue || code == cuda_abi::kNotInitialized ||
         code == cuda_abi::kStubLibrary || code == cuda_abi::kNoDevice;
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

absl::Status CudaDriver::CheckReaches(int device,
                                      const DeviceUuid& uuid) const {
  const absl::StatusOr<int> owner = DeviceWith(uuid);
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok() || *owner == device) return owner.status();
  int handles[2] = {}, can = 0;
  absl::Status status =
      Check(functions_.cuDeviceGet(&handles[0], device), "cuDeviceGet");
  status.Update(
      Check(functions_.cuDeviceGet(&handles[1], *owner), "cuDeviceGet"));
  if (!status.ok()) return status;
  status = Check(functions_.cuDeviceCanAccessPeer(&can, handles[0], handles[1]),
                 "cuDeviceCanAccessPeer");
  if (!status.ok() || can != 0) return status;
  return absl::UnimplementedError(absl::StrCat(
      "CUDA device ", device, " cannot access the memory of device ", *owner,
      " (no peer access)"));
}

absl::StatusOr<std::optional<int>> CudaDriver::DeviceOf(
    const void* address) const {
  const auto pointer = reinterpret_cast<cuda_abi::Pointer>(address);
  unsigned type = 0;
  const int code = PointerAttribute(functions_, &type,
                                    cuda_abi::kPointerMemoryType, pointer);
  if (IsOfTheHost(code)) return std::nullopt;
  absl::Status status = Check(code, "cuPointerGetAttribute");
  if (!status.ok()) return status;
  if (type != cuda_abi::kMemoryTypeDevice) return std::nullopt;
  int device = 0;
  status = Check(PointerAttribute(functions_, &device,
                                  cuda_abi::kPointerDeviceOrdinal, pointer),
                 "cuPointerGetAttribute");
  if (!status.ok()) return status;
  return device;
}

}  // namespace agg
