// Launcher of the Gram of up to 8 rows, a part of LaunchGram (gram_kernel.h).
#ifndef AGG_KERNELS_CUDA_GRAM_FEW_ROWS_H_
#define AGG_KERNELS_CUDA_GRAM_FEW_ROWS_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/kernel_use.h"

namespace agg::cuda {

inline constexpr int kFewRows = 8;

// Launches the Gram as LaunchGram does. REQUIRES: launch.num_rows <= kFewRows.
cudaError_t LaunchGramFewRows(const GramLaunch& launch, cudaStream_t stream);

// Brings the kernels of LaunchGramFewRows to the device, as LoadGram does.
cudaError_t LoadGramFewRows();
// Finds what the kernel of LaunchGramFewRows takes, as FindGramUse does.
cudaError_t FindFewRowsUse(int num_rows, int dtype, KernelUse* use);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_GRAM_FEW_ROWS_H_
