// What the emulated device is at the moment: memory, streams, and what tests
// have asked for. Only for the files that emulate the runtime (runtime_*.cc,
// controls.cc).
#ifndef AGG_TESTS_KERNELS_CUDA_EMULATOR_STATE_H_
#define AGG_TESTS_KERNELS_CUDA_EMULATOR_STATE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "tests/kernels/cuda/emulator/device.h"

// The runtime's own names for what its handles point to.
struct CUstream_st {
  int device = 0;
  std::deque<std::function<void()>> waiting;
  int64_t num_run = 0;
  int64_t num_enqueued = 0;
};

struct CUevent_st {
  int device = 0;
  CUstream_st* stream = nullptr;  // null: never recorded
  int64_t position = 0;  // work that the stream had been given before it
};

namespace agg::emulator {

// A copy that has not been made: which piece of work of which stream it is.
struct Copy {
  CUstream_st* stream;
  int64_t position;
};

struct State {
  // Guards everything below and all streams and events. Recursive, since work
  // of one stream may run work of another (an event that it waits for).
  std::recursive_mutex mutex;
  bool lazy = false;
  int64_t device_bytes = int64_t{1} << 40;
  std::map<int, int64_t> allocated_bytes;  // by device
  int64_t num_allocations = 0;
  int64_t num_failures = 0;
  cudaError_t broken = cudaSuccess;
  int double_ratio = 2;
  Calls calls;
  struct Mapping {
    void* start;
    int64_t mapped_bytes;
    int64_t num_bytes;  // that were asked for
    int device;
  };
  std::map<void*, Mapping> device_memory;  // by the address that users have
  std::map<void*, size_t> pinned_memory;
  std::map<void*, size_t> registered_memory;
  cudaError_t registering = cudaSuccess;  // what cudaHostRegister returns
  int64_t num_before_registering = 0;     // calls of it that still work
  int64_t largest_registered = 0;
  bool registered_serves_kernels = true;
  cudaError_t loading = cudaSuccess;
  cudaError_t preferring = cudaSuccess;
  std::set<const void*> preferring_shared;  // kernels
  int driver_version = CUDART_VERSION;
  int64_t staged_bytes = 0;
  std::set<CUstream_st*> streams;
  // Copies to and from the device: what each engine has to copy, in that order.
  struct Engines {
    std::deque<Copy> copies[2];
  };
  std::map<int, Engines> engines;  // by device
  int num_devices = 1;
  std::set<int> used_devices;
  std::map<int, unsigned> device_flags;
};

// What cudaSetDevice has set.
extern thread_local int current_device;
// The thread's device is in use from now on.
void UseDevice();

State& TheState();

using Lock = std::lock_guard<std::recursive_mutex>;

// Does the stream's work up to `position`. REQUIRES: the state is locked.
void RunUntil(CUstream_st* stream, int64_t position);
// Gives the stream a copy, to be made when its direction's earlier ones are.
// REQUIRES: the state is locked.
void EnqueueCopy(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                 CUstream_st* stream);
// Makes all copies that the direction's engine of the device has been given.
// REQUIRES: the state is locked.
void FinishCopies(cudaMemcpyKind kind, int device);
// Does the work of all streams of the device. REQUIRES: the state is locked.
void RunAll(int device);

// What a thread has asked to fail: the call behind `num_before` more.
struct Failure {
  int num_before = 0;
  cudaError_t error = cudaSuccess;
};
extern thread_local Failure launch_failure;
extern thread_local Failure copy_failure;

// What a call that `failure` may be meant for returns.
cudaError_t TakeFailure(Failure* failure);

void CountCall();  // which uses the thread's device
// The error of a lost device, or cudaSuccess.
cudaError_t Broken();

}  // namespace agg::emulator

#endif  // AGG_TESTS_KERNELS_CUDA_EMULATOR_STATE_H_
