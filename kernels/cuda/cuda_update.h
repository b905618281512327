// Update, its two halves and Norms: waves of kernels, downloads beside them.
// And Load, Read and Write: master weights and optimizer state from and to the
// host.
#ifndef AGG_KERNELS_CUDA_CUDA_UPDATE_H_
#define AGG_KERNELS_CUDA_CUDA_UPDATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_scratch.h"

namespace agg::cuda {

// --- Steps of a round. All take checked requests, whose rows are on the device
// or on their way there by work that scratch->compute waits for, and return
// when everything, copies to the host included, is done (but for a snapshot
// that is deferred). `narrowed`: device memory for as many 16-bit values as the
// narrowed snapshot has, or null.
//
// Backend::Update. A wave's part of the snapshot is on its way to the host
// while the next wave computes. Bit-identical to the CPU backend.
absl::Status ComputeUpdate(const UpdateRequest& request, CudaScratch* scratch,
                           uint16_t* narrowed);

// Backend::Combine and Backend::Step, bit-identical to Update. The kernels
// write and read the combined gradient in the host's pinned memory itself: what
// Combine writes goes to the host while it computes, and no device memory is
// taken.
absl::Status ComputeCombine(const UpdateRequest& request, CudaScratch* scratch);
absl::Status ComputeStep(const UpdateRequest& request, CudaScratch* scratch,
                         uint16_t* narrowed);

// Backend::Norms. Chunks are added in order; a NaN comes out as one bit
// pattern.
absl::Status ComputeNorms(const UpdateRequest& request, CudaScratch* scratch,
                          absl::Span<RangeNorms> norms);

// --- Copies. These return when the copies are done.
//
// Backend::Load.
absl::Status ComputeLoad(const OptimizerOptions& optimizer,
                         const Buffer& snapshot, Buffer* master, Buffer* state0,
                         Buffer* state1, Buffer* narrowed_snapshot,
                         DType narrowed_dtype, CudaScratch* scratch,
                         uint16_t* narrowed);

// Backend::Read and Write. The host's memory is not pinned: the driver copies
// through its own, and a checkpoint's copy needs no page locked for ever.
absl::Status ReadState(const Buffer& state, absl::Span<float> values,
                       CudaScratch* scratch);
absl::Status WriteState(absl::Span<const float> values, Buffer* state,
                        CudaScratch* scratch);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_UPDATE_H_
