// Update, its two halves and Norms of ranges: blocks to threads.
#ifndef AGG_KERNELS_CPU_UPDATE_H_
#define AGG_KERNELS_CPU_UPDATE_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace agg {

// Backend::Update of a checked request.
void ComputeUpdate(const UpdateRequest& request, ThreadPool* pool);

// Backend::Combine and Backend::Step of a checked request.
void ComputeCombine(const UpdateRequest& request, ThreadPool* pool);
void ComputeStep(const UpdateRequest& request, ThreadPool* pool);

// Backend::Norms of a checked request. Blocks are added in order; a NaN comes
// out as one bit pattern.
void ComputeNorms(const UpdateRequest& request, ThreadPool* pool,
                  absl::Span<RangeNorms> norms);

}  // namespace agg

#endif  // AGG_KERNELS_CPU_UPDATE_H_
