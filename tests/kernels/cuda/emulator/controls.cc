// What tests set and ask (device.h), and the state that it is kept in.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/cuda/emulator/state.h"

namespace agg::emulator {

thread_local Failure launch_failure;
thread_local Failure copy_failure;
thread_local int current_device = 0;

void UseDevice() {
  const Lock lock(TheState().mutex);
  TheState().used_devices.insert(current_device);
}

State& TheState() {
  static State* const state = new State;
  return *state;
}

template <typename T>
static void Set(T State::*member, T value) {
  const Lock lock(TheState().mutex);
  TheState().*member = value;
}

template <typename T>
static T Get(T State::*member) {
  const Lock lock(TheState().mutex);
  return TheState().*member;
}

cudaError_t TakeFailure(Failure* failure) {
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
  UseDevice();
  ++TheState().calls.all;
}

cudaError_t Broken() { return Get(&State::broken); }
void SetLazy(bool lazy) { Set(&State::lazy, lazy); }

void SetDeviceCount(int count) {
  const Lock lock(TheState().mutex);
  TheState().num_devices = count;
  TheState().used_devices.clear();
  TheState().device_flags.clear();
  current_device = 0;
}

bool DeviceUsed(int device) {
  const Lock lock(TheState().mutex);
  return TheState().used_devices.count(device) != 0;
}

unsigned DeviceFlags(int device) {
  const Lock lock(TheState().mutex);
  return TheState().device_flags[device];
}

void SetDoubleRatio(int ratio) { Set(&State::double_ratio, ratio); }
void SetDeviceBytes(int64_t num_bytes) { Set(&State::device_bytes, num_bytes); }
void SetDriverVersion(int version) { Set(&State::driver_version, version); }
void FailLoading(cudaError_t error) { Set(&State::loading, error); }

cudaError_t LoadError() {
  const Lock lock(TheState().mutex);
  UseDevice();
  return TheState().loading;
}

void FailPreferring(cudaError_t error) { Set(&State::preferring, error); }

int64_t NumPreferringShared() {
  const Lock lock(TheState().mutex);
  return static_cast<int64_t>(TheState().preferring_shared.size());
}

cudaError_t PreferShared(const void* kernel) {
  const Lock lock(TheState().mutex);
  UseDevice();
  if (TheState().preferring == cudaSuccess) {
    TheState().preferring_shared.insert(kernel);
  }
  return TheState().preferring;
}

void FailRegistering(cudaError_t error) { FailRegisteringAfter(0, error); }

void FailRegisteringAfter(int64_t num_pieces, cudaError_t error) {
  const Lock lock(TheState().mutex);
  TheState().registering = error;
  TheState().num_before_registering = num_pieces;
}

void SetRegisteredServesKernels(bool serves) {
  Set(&State::registered_serves_kernels, serves);
}

int64_t NumRegistered() {
  const Lock lock(TheState().mutex);
  return static_cast<int64_t>(TheState().registered_memory.size());
}

int64_t LargestRegistered() { return Get(&State::largest_registered); }
int64_t StagedBytes() { return Get(&State::staged_bytes); }

int64_t AllocatedDeviceBytes() {
  const Lock lock(TheState().mutex);
  int64_t num_bytes = 0;
  for (const auto& [device, allocated] : TheState().allocated_bytes) {
    num_bytes += allocated;
  }
  return num_bytes;
}

std::vector<Memory> KernelMemory() {
  const Lock lock(TheState().mutex);
  std::vector<Memory> all;
  for (const auto& [begin, mapping] : TheState().device_memory) {
    all.push_back({begin, mapping.num_bytes});
  }
  for (const auto* host :
       {&TheState().pinned_memory, &TheState().registered_memory}) {
    for (const auto& [begin, size] : *host) {
      all.push_back({begin, static_cast<int64_t>(size)});
    }
  }
  return all;
}

void FailLaunchAfter(int num_launches, cudaError_t error) {
  launch_failure = {num_launches, error};
}

void FailNextLaunch(cudaError_t error) { FailLaunchAfter(0, error); }

void FailCopyAfter(int num_copies, cudaError_t error) {
  copy_failure = {num_copies, error};
}

void FailNextCopy(cudaError_t error) { FailCopyAfter(0, error); }

int64_t NumFailures() { return Get(&State::num_failures); }

void BreakDevice(cudaError_t error) {
  const Lock lock(TheState().mutex);
  TheState().broken = error;
  for (CUstream_st* stream : TheState().streams) {
    stream->waiting.clear();
    stream->num_run = stream->num_enqueued;
  }
  TheState().engines.clear();
}

cudaError_t TakeLaunchError(cudaStream_t stream) {
  CountCall();
  const Lock lock(TheState().mutex);
  ++TheState().calls.launches;
  if (stream->device != current_device) return cudaErrorInvalidResourceHandle;
  return TakeFailure(&launch_failure);
}

Calls NumCalls() { return Get(&State::calls); }
int64_t NumAllocations() { return Get(&State::num_allocations); }

}  // namespace agg::emulator
