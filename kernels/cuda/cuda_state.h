// Load, Read and Write: master weights and optimizer state from and to the
// host.
#ifndef AGG_KERNELS_CUDA_CUDA_STATE_H_
#define AGG_KERNELS_CUDA_CUDA_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_scratch.h"

namespace agg::cuda {

// All take checked requests and return when the copies are done. `narrowed`:
// device memory for as many 16-bit values as the narrowed snapshot has, or
// null.

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

#endif  // AGG_KERNELS_CUDA_CUDA_STATE_H_
