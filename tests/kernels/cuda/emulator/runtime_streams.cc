// The runtime's functions about streams, events and the device itself, for the
// emulated device. Linked instead of NVIDIA's library.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>

#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/cuda/emulator/state.h"

namespace agg::emulator {

void RunUntil(CUstream_st* stream, int64_t position) {
  while (stream->num_run < position) {
    const std::function<void()> work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    ++stream->num_run;
    work();
  }
}

void RunAll(int device) {
  for (CUstream_st* stream : TheState().streams) {
    if (stream->device == device) RunUntil(stream, stream->num_enqueued);
  }
}

namespace {

bool Exists(int device) {
  const Lock lock(TheState().mutex);
  return device >= 0 && device < TheState().num_devices;
}

}  // namespace

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  const Lock lock(TheState().mutex);
  if (TheState().broken != cudaSuccess) return;
  stream->waiting.push_back(std::move(work));
  ++stream->num_enqueued;
  if (!TheState().lazy) RunUntil(stream, stream->num_enqueued);
}

// C functions in a namespace are the global ones (C++17 10.5).
extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(TheState().mutex);
  UseDevice();
  *stream = new CUstream_st;
  (*stream)->device = current_device;
  TheState().streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(TheState().mutex);
  UseDevice();
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

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(TheState().mutex);
  UseDevice();
  if (TheState().broken != cudaSuccess) return TheState().broken;
  return stream->num_run < stream->num_enqueued ? cudaErrorNotReady
                                                : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  CountCall();
  CUstream_st* const other = event->stream;
  const int64_t position = event->position;
  if (other != nullptr) {
    Enqueue(stream, [=] { RunUntil(other, position); });
  }
  return Broken();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  UseDevice();
  *event = new CUevent_st;
  (*event)->device = current_device;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  UseDevice();
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CountCall();
  const Lock lock(TheState().mutex);
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  event->stream = stream;
  event->position = stream->num_enqueued;
  return TheState().broken;
}

// It has no clock: everything takes a millisecond.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t,
                                 cudaEvent_t) {
  *milliseconds = 1.0f;
  return Broken();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(TheState().mutex);
  UseDevice();
  if (TheState().broken != cudaSuccess) return TheState().broken;
  const CUstream_st* const stream = event->stream;
  return stream != nullptr && stream->num_run < event->position
             ? cudaErrorNotReady
             : cudaSuccess;
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
  ++TheState().calls.device_waits;
  RunAll(current_device);
  return TheState().broken;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Lock lock(TheState().mutex);
  *count = 0;
  if (TheState().driver_version / 1000 < CUDART_VERSION / 1000) {
    return cudaErrorInsufficientDriver;
  }
  *count = TheState().num_devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!Exists(device)) return cudaErrorInvalidDevice;
  current_device = device;
  UseDevice();
  return Broken();
}
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  UseDevice();
  const Lock lock(TheState().mutex);
  TheState().device_flags[current_device] = flags;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  if (!Exists(device)) return cudaErrorInvalidDevice;
  const Lock lock(TheState().mutex);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
      *value = TheState().double_ratio;
      return cudaSuccess;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = TheState().registered_serves_kernels ? 1 : 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:  // these of sm_90
      *value = 2048;
      return cudaSuccess;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = 1 << 16;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 228 << 10;
      return cudaSuccess;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = 1 << 10;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!Exists(device)) return cudaErrorInvalidDevice;
  *properties = cudaDeviceProp();
  std::strncpy(properties->name, "emulated", sizeof(properties->name) - 1);
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (!Exists(device)) return cudaErrorInvalidDevice;
  std::snprintf(id, static_cast<size_t>(size), "0000:%02X:00.0", 0x1a + device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  const Lock lock(TheState().mutex);
  *version = TheState().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
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

}  // namespace agg::emulator
