// Launchers of the Gram kernels: partial sums per chunk, then per range.
//
// Work on `stream`, allocate nothing, do not wait, return launch errors.
// Deterministic from run to run on one kind of device: a pair's additions have
// one order, given by the chunk, the number of rows and the dtype (and, inside
// a tensor core, by the device's kind; all pairs see the same one, so equal
// rows have equal entries). No atomics. A non-finite element spoils the pairs
// of its own row only.
#ifndef AGG_KERNELS_CUDA_GRAM_KERNEL_H_
#define AGG_KERNELS_CUDA_GRAM_KERNEL_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kernels/cuda/chunk.h"

namespace agg::cuda {

// All pointers are to device memory.
struct GramLaunch {
  const void* const* rows = nullptr;  // num_rows, 16-byte aligned
  int num_rows = 0;                   // >= 1
  int dtype = 0;                      // agg::DType's value
  const Chunk* chunks = nullptr;
  int64_t num_chunks = 0;  // 0 launches nothing
  // [chunk][packed pair]; overwritten. partial_lo: of the pair kernel only.
  double* partial = nullptr;
  double* partial_lo = nullptr;
};

// Double accumulation, any number of rows: panels of 32 rows against each
// other; up to 32 rows are read exactly once.
cudaError_t LaunchGram(const GramLaunch& launch, cudaStream_t stream);

// Accumulation in pairs hi + lo (double_pair.h), tiles of 4 x 4 rows.
cudaError_t LaunchGramPairs(const GramLaunch& launch, cudaStream_t stream);

struct SumLaunch {
  const double* partial = nullptr;       // [chunk][value]
  const double* partial_lo = nullptr;    // of pairs, else null
  const int32_t* slot_begins = nullptr;  // num_slots + 1
  int64_t num_slots = 0;
  int64_t num_values = 0;
  double* sums = nullptr;     // [slot][value]
  double* sums_lo = nullptr;  // of pairs, else null
};

// Adds the chunks of each slot, in order.
cudaError_t LaunchSums(const SumLaunch& launch, cudaStream_t stream);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_GRAM_KERNEL_H_
