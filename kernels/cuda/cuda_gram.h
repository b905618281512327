// Gram matrices of ranges: waves of kernels, wave results added in order.
#ifndef AGG_KERNELS_CUDA_CUDA_GRAM_H_
#define AGG_KERNELS_CUDA_CUDA_GRAM_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_scratch.h"

namespace agg::cuda {

// Backend::Gram of a checked request whose rows are on the device, or on their
// way there by work that scratch->compute waits for. Returns when it is done.
// Deterministic: in which order an entry's products are added depends on its
// range, the number of rows and whether cuBLAS takes part, not on the other
// ranges of the request (chunk_plan.h); a NaN comes out as one bit pattern.
// RESOURCE_EXHAUSTED when one Gram matrix of so many rows exceeds
// scratch->wave_bytes.
absl::Status ComputeGram(const GramRequest& request, CudaScratch* scratch);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_GRAM_H_
