// Owners of device memory, streams and events.
#ifndef AGG_KERNELS_CUDA_CUDA_MEMORY_H_
#define AGG_KERNELS_CUDA_CUDA_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg::cuda {

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};

using DeviceMemory = std::unique_ptr<char, FreeDevice>;
using Stream =
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

// Zero-filled, at least 256-byte aligned. Zero bytes are legal. Waits for the
// zeros alone, not for what other streams have to do. (Its end does: cudaFree
// waits for the device, so that nothing which uses the memory is left.)
// INVALID_ARGUMENT for a negative size, RESOURCE_EXHAUSTED with the size and
// what the device has free.
absl::StatusOr<DeviceMemory> AllocateDevice(int64_t num_bytes);

// Fills device memory with zeros, and waits for these alone.
absl::Status ClearDevice(char* memory, int64_t num_bytes);

// A stream that does not synchronise with the default stream.
absl::StatusOr<Stream> MakeStream();
// An event without time stamps. Threads that wait for it on the host sleep, as
// they do for streams (the device's flag is not asked about events).
absl::StatusOr<Event> MakeEvent();

// Wait on the host for the stream's work, or the event, as CUDA's functions do
// (whose errors they return), but ask kQuestionsBeforeSleep times
// (device_stream.h) before the thread sleeps.
cudaError_t Await(cudaStream_t stream);
cudaError_t Await(cudaEvent_t event);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_MEMORY_H_
