// Gram matrices of ranges: blocks to threads, block results added in order.
#ifndef AGG_KERNELS_CPU_GRAM_H_
#define AGG_KERNELS_CPU_GRAM_H_

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace agg {

// Backend::Gram of a checked request. Deterministic: a range's blocks
// (block_plan.h) are computed by gram_kernel.h, and added in order, whichever
// threads they ran on. A NaN comes out as one bit pattern.
void ComputeGram(const GramRequest& request, ThreadPool* pool);

}  // namespace agg

#endif  // AGG_KERNELS_CPU_GRAM_H_
