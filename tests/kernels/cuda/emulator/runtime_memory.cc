// The runtime's functions about memory, for the emulated device. Linked instead
// of NVIDIA's library.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "kernels/device_memory/cuda_driver.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/cuda/emulator/state.h"

// C functions in a namespace are the global ones (C++17 10.5), and see what
// state.h declares.
namespace agg::emulator {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 16;  // of vector loads, which kernels use
// More than addresses there are: a real driver may call that a wrong argument
// instead of a lack of memory.
constexpr size_t kAbsurdBytes = size_t{1} << 47;

using Pieces = std::map<void*, size_t>;

bool IsInside(const Pieces& pieces, const void* memory, size_t size) {
  auto piece = pieces.upper_bound(const_cast<void*>(memory));
  if (piece == pieces.begin()) return false;
  --piece;
  const char* const begin = static_cast<const char*>(piece->first);
  const char* const from = static_cast<const char*>(memory);
  return from + size <= begin + piece->second;
}

// Whether a piece has some of it.
bool Touches(const Pieces& pieces, const void* memory, size_t size) {
  const char* const from = static_cast<const char*>(memory);
  auto piece = pieces.lower_bound(const_cast<char*>(from + size));
  if (piece == pieces.begin()) return false;
  --piece;
  return from < static_cast<const char*>(piece->first) + piece->second;
}

// Whether the device copies from and to it by itself.
bool IsPinned(const void* memory, size_t size) {
  return IsInside(TheState().pinned_memory, memory, size) ||
         IsInside(TheState().registered_memory, memory, size);
}

// Memory that is no result; the middle of a large piece stays untouched.
void Poison(char* memory, int64_t num_bytes) {
  const auto part = static_cast<size_t>(std::min(num_bytes, kPage));
  std::memset(memory, kPoison, part);
  std::memset(memory + num_bytes - part, kPoison, part);
}

// As the documentation of the runtime says of pageable memory: what the stream
// has to do comes first; then bytes for the device are taken before the call
// returns, and bytes for the host are there.
void CopyStaged(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                cudaStream_t stream) {
  TheState().staged_bytes += static_cast<int64_t>(size);
  RunUntil(stream, stream->num_enqueued);
  FinishCopies(kind, stream->device);
  if (kind == cudaMemcpyDeviceToHost) {
    std::memcpy(to, from, size);
    return;
  }
  const char* const begin = static_cast<const char*>(from);
  Enqueue(stream, [to, bytes = std::vector<char>(begin, begin + size)] {
    std::memcpy(to, bytes.data(), bytes.size());
  });
}

std::deque<Copy>& CopiesOf(cudaMemcpyKind kind, int device) {
  return TheState().engines[device].copies[kind == cudaMemcpyDeviceToHost ? 1
                                                                          : 0];
}

// Whether it lies in memory of the device, the driver's (a fake one's, of the
// same devices) included.
bool IsOn(int device, const void* memory) {
  auto found = TheState().device_memory.upper_bound(const_cast<void*>(memory));
  if (found != TheState().device_memory.begin()) {
    --found;
    const char* const begin = static_cast<const char*>(found->first);
    if (static_cast<const char*>(memory) <= begin + found->second.num_bytes) {
      return found->second.device == device;
    }
  }
  const std::shared_ptr<const CudaDriver> driver = CudaDriver::FindLoaded();
  if (driver == nullptr) return false;
  const auto owner = driver->DeviceOf(memory);
  return owner.ok() && *owner == device;
}

}  // namespace

// Whatever an earlier copy waits for was asked for before it, and so before
// what runs now: running it never comes back here.
void EnqueueCopy(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                 CUstream_st* stream) {
  if (TheState().broken != cudaSuccess) return;
  const int64_t position = stream->num_enqueued + 1;
  CopiesOf(kind, stream->device).push_back({stream, position});
  Enqueue(stream, [=] {
    std::deque<Copy>& copies = CopiesOf(kind, stream->device);
    while (copies.front().stream != stream ||
           copies.front().position != position) {
      const Copy first = copies.front();
      RunUntil(first.stream, first.position);
    }
    copies.pop_front();
    std::memcpy(to, from, size);
  });
}

void FinishCopies(cudaMemcpyKind kind, int device) {
  std::deque<Copy>& copies = CopiesOf(kind, device);
  while (!copies.empty()) {
    const Copy first = copies.front();
    RunUntil(first.stream, first.position);
  }
}

extern "C" {

// Ends (to 16 bytes) at a page that cannot be touched. Begins and ends with
// what another process may have left there.
cudaError_t cudaMalloc(void** memory, size_t size) {
  State& state = TheState();
  const Lock lock(state.mutex);
  UseDevice();
  if (state.broken != cudaSuccess) return state.broken;
  const auto num_bytes = static_cast<int64_t>(size);
  int64_t& allocated = state.allocated_bytes[current_device];
  if (allocated + num_bytes > state.device_bytes) {
    return cudaErrorMemoryAllocation;
  }
  const int64_t used = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t mapped_bytes = (used + kPage - 1) / kPage * kPage + kPage;
  void* const start = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return cudaErrorMemoryAllocation;
  char* const guard = static_cast<char*>(start) + mapped_bytes - kPage;
  mprotect(guard, kPage, PROT_NONE);
  *memory = guard - used;
  Poison(guard - used, num_bytes);
  state.device_memory[*memory] = {start, mapped_bytes, num_bytes,
                                  current_device};
  allocated += num_bytes;
  ++state.num_allocations;
  return cudaSuccess;
}

// On the device of the calling thread alone: nothing promises more.
cudaError_t cudaFree(void* memory) {
  State& state = TheState();
  const Lock lock(state.mutex);
  UseDevice();
  RunAll(current_device);
  const auto found = state.device_memory.find(memory);
  if (found == state.device_memory.end() ||
      found->second.device != current_device) {
    return cudaErrorInvalidValue;
  }
  state.allocated_bytes[current_device] -= found->second.num_bytes;
  munmap(found->second.start, found->second.mapped_bytes);
  state.device_memory.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned /*flags*/) {
  const Lock lock(TheState().mutex);
  UseDevice();
  if (TheState().broken != cudaSuccess) return TheState().broken;
  if (size >= kAbsurdBytes) return cudaErrorInvalidValue;
  ++TheState().num_allocations;
  *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*memory == MAP_FAILED) return cudaErrorMemoryAllocation;
  TheState().pinned_memory[*memory] = size;
  return cudaSuccess;
}

// The address space is not given back: a late access would go unseen.
cudaError_t cudaFreeHost(void* memory) {
  State& state = TheState();
  const Lock lock(state.mutex);
  UseDevice();
  RunAll(current_device);
  const auto found = state.pinned_memory.find(memory);
  if (found == state.pinned_memory.end()) return cudaErrorInvalidValue;
  madvise(memory, found->second, MADV_DONTNEED);
  mprotect(memory, found->second, PROT_NONE);
  state.pinned_memory.erase(found);
  return cudaSuccess;
}

// Pages as they are, and the memory stays readable: what a late copy finds
// there is what its owner has written since, or nothing.
cudaError_t cudaHostRegister(void* memory, size_t size, unsigned /*flags*/) {
  State& state = TheState();
  const Lock lock(state.mutex);
  UseDevice();
  if (state.broken != cudaSuccess) return state.broken;
  if (state.registering != cudaSuccess && state.num_before_registering-- <= 0) {
    return state.registering;
  }
  if (size == 0) return cudaErrorInvalidValue;
  if (Touches(state.pinned_memory, memory, size) ||
      Touches(state.registered_memory, memory, size)) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  state.registered_memory[memory] = size;
  state.largest_registered =
      std::max(state.largest_registered, static_cast<int64_t>(size));
  ++state.num_allocations;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  const Lock lock(TheState().mutex);
  UseDevice();
  return TheState().registered_memory.erase(memory) == 1
             ? cudaSuccess
             : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaMemset(void* memory, int value, size_t size) {
  CountCall();
  if (Broken() != cudaSuccess) return Broken();
  std::memset(memory, value, size);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t size,
                            cudaStream_t stream) {
  CountCall();
  const Lock lock(TheState().mutex);
  if (stream->device != current_device || !IsOn(current_device, memory)) {
    return cudaErrorInvalidResourceHandle;
  }
  Enqueue(stream, [=] { std::memset(memory, value, size); });
  return Broken();
}

// Refuses host memory that is pinned in part, which the documentation says, and
// in several pieces, which drivers were seen to do.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  CountCall();
  const cudaError_t error = TakeFailure(&copy_failure);
  if (error != cudaSuccess) return error;
  const Lock lock(TheState().mutex);
  const bool down = kind == cudaMemcpyDeviceToHost;
  // A real one copies by detours; here that is a mistake.
  if (!IsOn(stream->device, down ? from : to)) return cudaErrorInvalidValue;
  const void* const host = down ? to : from;
  if (!IsPinned(host, size)) {
    if (Touches(TheState().pinned_memory, host, size) ||
        Touches(TheState().registered_memory, host, size)) {
      return cudaErrorInvalidValue;
    }
    CopyStaged(to, from, size, kind, stream);
    return cudaSuccess;
  }
  EnqueueCopy(to, from, size, kind, stream);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const Lock lock(TheState().mutex);
  UseDevice();
  *total_bytes = static_cast<size_t>(TheState().device_bytes);
  *free_bytes = static_cast<size_t>(TheState().device_bytes -
                                    TheState().allocated_bytes[current_device]);
  return cudaSuccess;
}

}  // extern "C"

}  // namespace agg::emulator
