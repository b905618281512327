// The fake driver's addresses: which ones are a device's, which ones pinned
// memory of the host.
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/kernels/device_memory/fake_state.h"

namespace agg::fake_cuda {
namespace {

template <class Size>
bool IsInside(const char* from, size_t size, const char* begin, Size length) {
  return from >= begin && from + size <= begin + length;
}

}  // namespace

char* Reserve(size_t size) {
  // As aligned as a device's memory is.
  const size_t all = size + kGranularity + kPage;
  void* const start = mmap(nullptr, all, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t aligned =
      (address + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned > address) munmap(start, aligned - address);
  const uintptr_t end = aligned + size + kPage;
  if (address + all > end) {
    munmap(reinterpret_cast<void*>(end), address + all - end);
  }
  return reinterpret_cast<char*>(aligned);
}

const Range* RangeOf(const void* address, size_t size) {
  const auto* const from = static_cast<const char*>(address);
  for (const auto& [begin, range] : TheState().ranges) {
    if (IsInside(from, size, begin, range.size)) return &range;
  }
  return nullptr;
}

std::string AccessTo(const void* address) {
  const auto sought = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) == 3 &&
        begin <= sought && sought < end) {
      return access;
    }
  }
  return "";
}

bool IsPinned(const void* address, size_t size) {
  const auto* const from = static_cast<const char*>(address);
  for (const auto& [begin, length] : TheState().pinned) {
    if (IsInside(from, size, begin, length)) return true;
  }
  return false;
}

}  // namespace agg::fake_cuda

namespace agg::cuda_abi {

using fake_cuda::BeginCall;
using fake_cuda::BeginCallInContext;
using fake_cuda::kPage;
using fake_cuda::Lock;
using fake_cuda::Range;
using fake_cuda::TheState;

// The driver's CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
constexpr int kAlreadyRegistered = 712;

extern "C" {

int cuPointerGetAttribute(void* data, int attribute, Pointer pointer) {
  const Lock lock(TheState().mutex);
  const int error = TheState().pointers_want_context
                        ? BeginCallInContext("cuPointerGetAttribute")
                        : BeginCall("cuPointerGetAttribute");
  if (error != kSuccess) return error;
  const void* const address = reinterpret_cast<void*>(pointer);
  const Range* const range = fake_cuda::RangeOf(address, 1);
  const bool on_device = range != nullptr && range->mapped;
  if (!on_device && !fake_cuda::IsPinned(address, 1)) return kInvalidValue;
  if (attribute == kPointerMemoryType) {
    const unsigned type = on_device ? kMemoryTypeDevice : kMemoryTypeHost;
    std::memcpy(data, &type, sizeof(type));
  } else {
    const int device = on_device ? range->device : 0;
    std::memcpy(data, &device, sizeof(device));
  }
  return kSuccess;
}

int cuMemAllocHost_v2(void** memory, size_t size) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemAllocHost_v2");
  if (error != kSuccess) return error;
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return kOutOfMemory;
  TheState().pinned[static_cast<char*>(address)] = size;
  *memory = address;
  return kSuccess;
}

int cuMemFreeHost(void* memory) {
  const Lock lock(TheState().mutex);
  const auto found = TheState().pinned.find(static_cast<char*>(memory));
  if (found == TheState().pinned.end()) return kInvalidValue;
  munmap(memory, found->second);
  TheState().pinned.erase(found);
  return BeginCall("cuMemFreeHost");
}

int cuMemHostRegister_v2(void* memory, size_t size, unsigned flags) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemHostRegister_v2");
  if (error != kSuccess) return error;
  const bool read_only = (flags & kRegisterReadOnly) != 0;
  const std::string access = fake_cuda::AccessTo(memory);
  if (access[0] != 'r' || (!read_only && access[1] != 'w')) {
    return kInvalidValue;
  }
  if (fake_cuda::IsPinned(memory, 1)) return kAlreadyRegistered;
  TheState().pinned[static_cast<char*>(memory)] = size;
  return kSuccess;
}

int cuMemHostUnregister(void* memory) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemHostUnregister");
  if (error != kSuccess) return error;
  // What is no longer mapped stays registered, and is counted.
  if (fake_cuda::AccessTo(memory).empty()) return kInvalidValue;
  return TheState().pinned.erase(static_cast<char*>(memory)) == 1
             ? kSuccess
             : kInvalidValue;
}

// --- Controls ---------------------------------------------------------------

void* agg_fake_cuda_alloc_on(int device, int64_t bytes) {
  const Lock lock(TheState().mutex);
  TheState().initialised = true;  // as the runtime does it
  const size_t size = (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
  char* const address = fake_cuda::Reserve(size);
  if (address == nullptr ||
      mprotect(address, size, PROT_READ | PROT_WRITE) != 0) {
    return nullptr;
  }
  // The driver brings copies between devices to an end by itself.
  TheState().ranges[address] = {size, device, /*mapped=*/true, /*users=*/~0u};
  return address;
}

void* agg_fake_cuda_alloc(int64_t bytes) {
  return agg_fake_cuda_alloc_on(0, bytes);
}

int agg_fake_cuda_free(void* memory) {
  const Lock lock(TheState().mutex);
  const auto found = TheState().ranges.find(static_cast<char*>(memory));
  if (found == TheState().ranges.end()) return kInvalidValue;
  munmap(memory, found->second.size + kPage);
  TheState().ranges.erase(found);
  return kSuccess;
}

}  // extern "C"

}  // namespace agg::cuda_abi
