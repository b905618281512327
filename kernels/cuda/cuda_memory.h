// Owners of device memory, streams, events, and of host memory that the device
// copies from and to by itself.
#ifndef AGG_KERNELS_CUDA_CUDA_MEMORY_H_
#define AGG_KERNELS_CUDA_CUDA_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/copy_journal.h"
#include "kernels/cuda/numa_node.h"

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

// Bytes of a piece of pinned host memory. It is pinned piece by piece: the
// driver holds its locks, which every other call needs, for as long as one
// piece takes. The last one of a buffer may have fewer. 16 Ki pages.
inline constexpr int64_t kPieceBytes = int64_t{64} << 20;

// Ends the pinning of a buffer, piece by piece.
struct UnregisterHost {
  int64_t num_bytes = 0;
  void operator()(char* memory) const;
};
// And gives the memory back.
struct FreePinned {
  int64_t num_bytes = 0;  // that were mapped and registered; 0: cudaHostAlloc's
  void operator()(char* memory) const;
};

using RegisteredMemory = std::unique_ptr<char, UnregisterHost>;
using PinnedMemory = std::unique_ptr<char, FreePinned>;

// Zero-filled, page-aligned, on the node if it can be; kernels may read and
// write it at its own address. Zero bytes are legal. Where memory cannot be
// registered, or does not serve kernels then, it is cudaHostAlloc's, in one
// piece.
// INVALID_ARGUMENT for a negative size, RESOURCE_EXHAUSTED with the size.
absl::StatusOr<PinnedMemory> AllocatePinned(int64_t num_bytes,
                                            const NumaNode& node);

// Pins memory of the caller until the result ends, which the memory outlives.
// After an error nothing of it is pinned. RESOURCE_EXHAUSTED: the system pins
// no more; the call's other errors. REQUIRES: num_bytes > 0.
absl::StatusOr<RegisteredMemory> RegisterHost(char* memory, int64_t num_bytes);

// Copies bytes `span` of a buffer between the device and the host, whose
// beginnings are given; `host` is pinned as above, or not pinned at all. In as
// many copies as it has pieces: one that reaches from one piece into the next
// is refused (cudaErrorInvalidValue), although they are neighbours. No such
// promise is in NVIDIA's documentation; others have met the error.
absl::Status CopyToDevice(const char* host, char* device, const ByteSpan& span,
                          cudaStream_t stream);
absl::Status CopyToHost(const char* device, char* host, const ByteSpan& span,
                        cudaStream_t stream);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_MEMORY_H_
