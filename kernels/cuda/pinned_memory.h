// Host memory that the device copies from and to by itself, pinned piece by
// piece: the driver holds its locks, which every other call needs, for as long
// as one piece takes.
#ifndef AGG_KERNELS_CUDA_PINNED_MEMORY_H_
#define AGG_KERNELS_CUDA_PINNED_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/copy_coalescer.h"
#include "kernels/cuda/numa_node.h"

namespace agg::cuda {

// Bytes of a piece; the last one of a buffer may have fewer. 16 Ki pages.
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

#endif  // AGG_KERNELS_CUDA_PINNED_MEMORY_H_
