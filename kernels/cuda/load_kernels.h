// Brings kernels to the device before the first round.
#ifndef AGG_KERNELS_CUDA_LOAD_KERNELS_H_
#define AGG_KERNELS_CUDA_LOAD_KERNELS_H_

#include "absl/status/status.h"

namespace agg::cuda {

// All that a backend launches, which the driver may have to compile first.
// `double_float`: plain Grams are those of LaunchGramDoubleFloat. INTERNAL:
// one of them cannot be loaded.
absl::Status LoadKernels(bool double_float);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_LOAD_KERNELS_H_
