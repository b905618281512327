// Owners of device memory, pinned host memory, streams and events.
#ifndef AGG_KERNELS_CUDA_CUDA_MEMORY_H_
#define AGG_KERNELS_CUDA_CUDA_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/statusor.h"

namespace agg::cuda {

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct FreePinned {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};
struct UnregisterHost {
  void operator()(void* memory) const { cudaHostUnregister(memory); }
};
struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};

using DeviceMemory = std::unique_ptr<char, FreeDevice>;
using PinnedMemory = std::unique_ptr<char, FreePinned>;
using RegisteredMemory = std::unique_ptr<char, UnregisterHost>;
using Stream =
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

// Zero-filled, at least 256-byte aligned (device) or page-aligned (pinned).
// Zero bytes are legal. INVALID_ARGUMENT for a negative size,
// RESOURCE_EXHAUSTED with the size and what the device has free.
absl::StatusOr<DeviceMemory> AllocateDevice(int64_t num_bytes);
absl::StatusOr<PinnedMemory> AllocatePinned(int64_t num_bytes);

// Pins memory of the caller until the result ends, which the memory outlives:
// what cudaHostAlloc gives, of memory that is there already.
// RESOURCE_EXHAUSTED: the system pins no more; the call's other errors.
// REQUIRES: num_bytes > 0.
absl::StatusOr<RegisteredMemory> RegisterHost(char* memory, int64_t num_bytes);

// A stream that does not synchronise with the default stream.
absl::StatusOr<Stream> MakeStream();
// An event without time stamps. Threads that wait for it on the host sleep, as
// they do for streams (the device's flag is not asked about events).
absl::StatusOr<Event> MakeEvent();

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_MEMORY_H_
