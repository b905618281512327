// The runtime's functions that kernels/cuda calls, for the emulated device.
// Linked instead of NVIDIA's library.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tests/kernels/cuda/emulator/device.h"

struct CUstream_st {
  std::deque<std::function<void()>> waiting;
  int64_t num_run = 0;
  int64_t num_enqueued = 0;
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
  int64_t position = 0;  // of what was enqueued before it
};

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 16;

struct State {
  std::recursive_mutex mutex;  // guards all of it
  bool lazy = false;
  int64_t device_bytes = int64_t{1} << 40;
  int64_t allocated_bytes = 0;
  int64_t num_allocations = 0;
  int64_t num_failures = 0;
  cudaError_t broken = cudaSuccess;
  int double_ratio = 2;
  agg::emulator::Calls calls;
  // Of the usable memory: the mapping's start and size, and the user's size.
  struct Mapping {
    void* start;
    int64_t mapped_bytes;
    int64_t num_bytes;
  };
  std::map<void*, Mapping> device_memory;
  std::map<void*, size_t> pinned_memory;
  std::set<CUstream_st*> streams;
};

State& TheState() {
  static State* const state = new State;
  return *state;
}

void RunUntil(CUstream_st* stream, int64_t position) {
  while (stream->num_run < position) {
    const std::function<void()> work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    ++stream->num_run;
    work();
  }
}

void RunAll() {
  for (CUstream_st* stream : TheState().streams) {
    RunUntil(stream, stream->num_enqueued);
  }
}

using Lock = std::lock_guard<std::recursive_mutex>;

// What a thread has asked to fail.
struct Failure {
  int num_before = 0;
  cudaError_t error = cudaSuccess;
};
thread_local Failure launch_failure;
thread_local Failure copy_failure;

// What the call that asks comes to.
cudaError_t Take(Failure* failure) {
  const Lock lock(TheState().mutex);
  if (TheState().broken != cudaSuccess) return TheState().broken;
  if (failure->error == cudaSuccess || failure->num_before-- > 0) {
    return cudaSuccess;
  }
  ++TheState().num_failures;
  return std::exchange(failure->error, cudaSuccess);
}

void CountCall() {
  const Lock lock(TheState().mutex);
  ++TheState().calls.all;
}

cudaError_t Broken() {
  const Lock lock(TheState().mutex);
  return TheState().broken;
}

}  // namespace

namespace agg::emulator {

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  const Lock lock(TheState().mutex);
  if (TheState().broken != cudaSuccess) return;
  stream->waiting.push_back(std::move(work));
  ++stream->num_enqueued;
  if (!TheState().lazy) RunUntil(stream, stream->num_enqueued);
}

void SetLazy(bool lazy) {
  const Lock lock(TheState().mutex);
  TheState().lazy = lazy;
}

void SetDoubleRatio(int ratio) {
  const Lock lock(TheState().mutex);
  TheState().double_ratio = ratio;
}

void SetDeviceBytes(int64_t num_bytes) {
  const Lock lock(TheState().mutex);
  TheState().device_bytes = num_bytes;
}

int64_t AllocatedDeviceBytes() {
  const Lock lock(TheState().mutex);
  return TheState().allocated_bytes;
}

void FailLaunchAfter(int num_launches, cudaError_t error) {
  launch_failure = {num_launches, error};
}

void FailNextLaunch(cudaError_t error) { FailLaunchAfter(0, error); }

void FailNextCopy(cudaError_t error) { copy_failure = {0, error}; }

int64_t NumFailures() {
  const Lock lock(TheState().mutex);
  return TheState().num_failures;
}

void BreakDevice(cudaError_t error) {
  const Lock lock(TheState().mutex);
  TheState().broken = error;
  for (CUstream_st* stream : TheState().streams) {
    stream->waiting.clear();
    stream->num_run = stream->num_enqueued;
  }
}

cudaError_t TakeLaunchError() {
  const Lock lock(TheState().mutex);
  ++TheState().calls.all;
  ++TheState().calls.launches;
  return Take(&launch_failure);
}

Calls NumCalls() {
  const Lock lock(TheState().mutex);
  return TheState().calls;
}

int64_t NumAllocations() {
  const Lock lock(TheState().mutex);
  return TheState().num_allocations;
}

}  // namespace agg::emulator

extern "C" {

// Ends (to 16 bytes) at a page that cannot be touched.
cudaError_t cudaMalloc(void** memory, size_t size) {
  State& state = TheState();
  const Lock lock(state.mutex);
  if (state.broken != cudaSuccess) return state.broken;
  const auto num_bytes = static_cast<int64_t>(size);
  if (state.allocated_bytes + num_bytes > state.device_bytes) {
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
  state.device_memory[*memory] = {start, mapped_bytes, num_bytes};
  state.allocated_bytes += num_bytes;
  ++state.num_allocations;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  State& state = TheState();
  const Lock lock(state.mutex);
  RunAll();
  const auto found = state.device_memory.find(memory);
  if (found == state.device_memory.end()) return cudaErrorInvalidValue;
  state.allocated_bytes -= found->second.num_bytes;
  munmap(found->second.start, found->second.mapped_bytes);
  state.device_memory.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned /*flags*/) {
  const Lock lock(TheState().mutex);
  if (TheState().broken != cudaSuccess) return TheState().broken;
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
  RunAll();
  const auto found = state.pinned_memory.find(memory);
  if (found == state.pinned_memory.end()) return cudaErrorInvalidValue;
  madvise(memory, found->second, MADV_DONTNEED);
  mprotect(memory, found->second, PROT_NONE);
  state.pinned_memory.erase(found);
  return cudaSuccess;
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
  agg::emulator::Enqueue(stream, [=] { std::memset(memory, value, size); });
  return Broken();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  CountCall();
  const cudaError_t error = Take(&copy_failure);
  if (error != cudaSuccess) return error;
  agg::emulator::Enqueue(stream, [=] { std::memcpy(to, from, size); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(TheState().mutex);
  *stream = new CUstream_st;
  TheState().streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(TheState().mutex);
  RunUntil(stream, stream->num_enqueued);
  TheState().streams.erase(stream);
  return cudaSuccess;  // kept: events may point to it
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CountCall();
  const Lock lock(TheState().mutex);
  RunUntil(stream, stream->num_enqueued);
  return TheState().broken;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  CountCall();
  CUstream_st* const other = event->stream;
  const int64_t position = event->position;
  if (other != nullptr) {
    agg::emulator::Enqueue(stream, [=] { RunUntil(other, position); });
  }
  return Broken();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CountCall();
  const Lock lock(TheState().mutex);
  event->stream = stream;
  event->position = stream->num_enqueued;
  return TheState().broken;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CountCall();
  const Lock lock(TheState().mutex);
  if (event->stream != nullptr) RunUntil(event->stream, event->position);
  return TheState().broken;
}

cudaError_t cudaDeviceSynchronize() {
  CountCall();
  const Lock lock(TheState().mutex);
  RunAll();
  return TheState().broken;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const Lock lock(TheState().mutex);
  *total_bytes = static_cast<size_t>(TheState().device_bytes);
  *free_bytes =
      static_cast<size_t>(TheState().device_bytes - TheState().allocated_bytes);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const Lock lock(TheState().mutex);
  *value = attribute == cudaDevAttrComputeCapabilityMajor
               ? 9
               : TheState().double_ratio;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) {
  *device = cudaDeviceProp();
  std::strncpy(device->name, "emulated", sizeof(device->name) - 1);
  device->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return Broken(); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "other";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "emulated error"; }

}  // extern "C"
