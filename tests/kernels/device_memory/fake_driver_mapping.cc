// The fake driver's virtual memory management: memory is a file of no file
// system (memfd), which other processes map as they would map a device's.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/kernels/device_memory/fake_state.h"

namespace agg::fake_cuda {
namespace {

// Of a memfd, with the UUID of the device behind it: how another process knows
// such a descriptor, and whose memory it is.
constexpr const char* kFilePrefix = "agg_fake_cuda:";

std::string FileNameOf(int device) {
  cuda_abi::Uuid uuid;
  cuda_abi::cuDeviceGetUuid_v2(&uuid, device);
  std::string name = kFilePrefix;
  for (const char byte : uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(byte)));
    name += digits;
  }
  return name;
}

// Below 0: none that is visible.
int DeviceNamed(const std::string& name) {
  for (int device = 0; device < TheState().num_devices; ++device) {
    if (name.find(FileNameOf(device)) != std::string::npos) return device;
  }
  return -1;
}

std::string LinkOf(int fd) {
  char text[256] = {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(path.c_str(), text, sizeof(text) - 1);
  return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
}

}  // namespace
}  // namespace agg::fake_cuda

namespace agg::cuda_abi {

using fake_cuda::BeginCall;
using fake_cuda::BeginCallInContext;
using fake_cuda::kGranularity;
using fake_cuda::kPage;
using fake_cuda::Lock;
using fake_cuda::TheState;

// C functions in a namespace are the global ones (C++17 10.5).
extern "C" {

int cuMemGetAllocationGranularity(size_t* granularity,
                                  const AllocationProp* /*prop*/,
                                  int /*option*/) {
  const Lock lock(TheState().mutex);
  *granularity = kGranularity;
  return BeginCall("cuMemGetAllocationGranularity");
}

int cuMemCreate(Handle* handle, size_t size, const AllocationProp* prop,
                unsigned long long flags) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemCreate");
  if (error != kSuccess) return error;
  if (size == 0 || size % kGranularity != 0 || flags != 0 ||
      prop->type != kAllocationTypePinned ||
      prop->location.type != kLocationTypeDevice || prop->location.id < 0 ||
      prop->location.id >= TheState().num_devices) {
    return kInvalidValue;
  }
  const int device = prop->location.id;
  const int fd =
      memfd_create(fake_cuda::FileNameOf(device).c_str(), MFD_CLOEXEC);
  if (fd < 0) return kOutOfMemory;
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    close(fd);
    return kOutOfMemory;
  }
  *handle = ++TheState().last_handle;
  TheState().handles[*handle] = {fd, size, device};
  return kSuccess;
}

int cuMemRelease(Handle handle) {
  const Lock lock(TheState().mutex);
  const auto found = TheState().handles.find(handle);
  if (found == TheState().handles.end()) return kInvalidValue;
  close(found->second.fd);
  TheState().handles.erase(found);
  return BeginCall("cuMemRelease");
}

int cuMemExportToShareableHandle(void* shareable, Handle handle, int type,
                                 unsigned long long flags) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemExportToShareableHandle");
  if (error != kSuccess) return error;
  const auto found = TheState().handles.find(handle);
  if (found == TheState().handles.end() || flags != 0 ||
      type != kHandleTypePosixFileDescriptor) {
    return kInvalidValue;
  }
  const int fd = dup(found->second.fd);
  std::memcpy(shareable, &fd, sizeof(fd));
  return kSuccess;
}

int cuMemImportFromShareableHandle(Handle* handle, void* os_handle, int type) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemImportFromShareableHandle");
  if (error != kSuccess) return error;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  const std::string name = fake_cuda::LinkOf(fd);
  struct stat status;
  if (type != kHandleTypePosixFileDescriptor || fstat(fd, &status) != 0 ||
      name.find(fake_cuda::kFilePrefix) == std::string::npos) {
    return kInvalidValue;
  }
  const int device = fake_cuda::DeviceNamed(name);
  if (device < 0 && !TheState().peers) return kInvalidDevice;
  *handle = ++TheState().last_handle;
  TheState().handles[*handle] = {dup(fd), static_cast<size_t>(status.st_size),
                                 device};
  return kSuccess;
}

int cuMemAddressReserve(Pointer* pointer, size_t size, size_t /*alignment*/,
                        Pointer /*address*/, unsigned long long flags) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemAddressReserve");
  if (error != kSuccess) return error;
  if (size == 0 || size % kGranularity != 0 || flags != 0) return kInvalidValue;
  char* const address = fake_cuda::Reserve(size);
  if (address == nullptr) return kOutOfMemory;
  TheState().ranges[address].size = size;
  *pointer = reinterpret_cast<Pointer>(address);
  return kSuccess;
}

int cuMemAddressFree(Pointer pointer, size_t size) {
  const Lock lock(TheState().mutex);
  auto* const address = reinterpret_cast<char*>(pointer);
  const auto found = TheState().ranges.find(address);
  if (found == TheState().ranges.end() || found->second.mapped ||
      found->second.size != size) {
    return kInvalidValue;
  }
  munmap(address, size + kPage);
  TheState().ranges.erase(found);
  return BeginCall("cuMemAddressFree");
}

int cuMemMap(Pointer pointer, size_t size, size_t offset, Handle handle,
             unsigned long long flags) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemMap");
  if (error != kSuccess) return error;
  auto* const address = reinterpret_cast<char*>(pointer);
  const auto range = TheState().ranges.find(address);
  const auto memory = TheState().handles.find(handle);
  if (range == TheState().ranges.end() || range->second.mapped ||
      memory == TheState().handles.end() || range->second.size != size ||
      size > memory->second.size || offset != 0 || flags != 0) {
    return kInvalidValue;
  }
  if (mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second.fd,
           0) == MAP_FAILED) {
    return kOutOfMemory;
  }
  range->second.device = memory->second.device;
  range->second.mapped = true;
  return kSuccess;
}

int cuMemUnmap(Pointer pointer, size_t size) {
  const Lock lock(TheState().mutex);
  auto* const address = reinterpret_cast<char*>(pointer);
  const auto range = TheState().ranges.find(address);
  if (range == TheState().ranges.end() || !range->second.mapped ||
      range->second.size != size) {
    return kInvalidValue;
  }
  mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
       0);
  range->second.mapped = false;
  range->second.users = 0;
  return BeginCall("cuMemUnmap");
}

// The host may touch it, too: that is how kernels of the emulated device do.
int cuMemSetAccess(Pointer pointer, size_t size, const AccessDesc* access,
                   size_t count) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemSetAccess");
  if (error != kSuccess) return error;
  auto* const address = reinterpret_cast<char*>(pointer);
  const auto range = TheState().ranges.find(address);
  if (range == TheState().ranges.end() || !range->second.mapped ||
      range->second.size != size || count != 1 ||
      access->location.type != kLocationTypeDevice || access->location.id < 0 ||
      access->location.id >= TheState().num_devices) {
    return kInvalidValue;
  }
  const int user = access->location.id;
  if (user != range->second.device && !TheState().peers) return kInvalidDevice;
  if (mprotect(address, size, PROT_READ | PROT_WRITE) != 0) return kOutOfMemory;
  range->second.users |= 1u << user;
  return kSuccess;
}

}  // extern "C"

}  // namespace agg::cuda_abi
