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

#include "kernels/cuda/kernel_args.h"

namespace agg::cuda {

// All pointers are to device memory, unless they say otherwise.
struct GramLaunch {
  InlineArgs args;
  ArgArray<const void*> rows;  // num_rows, 16-byte aligned
  int num_rows = 0;            // >= 1
  int dtype = 0;               // agg::DType's value
  int64_t scale_offset = 0;    // of int8: where a row's scales begin
  ArgArray<Slot> slots;
  int32_t num_slots = 0;
  const Chunk* chunks = nullptr;  // pinned; null: they follow from the slots
  int64_t num_chunks = 0;         // of all slots; 0 launches nothing
  // Partial sums, [chunk][packed pair]; overwritten. partial_lo: of
  // LaunchGramPairs and of a compensated LaunchGramInt8 only.
  double* partial = nullptr;
  double* partial_lo = nullptr;
};

// Leaves 16 bytes for a kernel's other parameters.
static_assert(sizeof(GramLaunch) + 16 <= kParameterBytes);

// --- Grams. "Off by" is the bound of an entry's error in a chunk: n is its
// number of elements, A the sum of |a_k b_k|. Typically errors are far less,
// since they have random signs.
//
// Launches a Gram that accumulates in doubles, of any number of rows: panels of
// 32 rows against each other; up to 32 rows are read exactly once. Off by n *
// 2^-53 * A.
cudaError_t LaunchGram(const GramLaunch& launch, cudaStream_t stream);

// Launches a Gram that accumulates in pairs of doubles (double_pair.h), in
// tiles of 4 x 4 rows. Off by n * 2^-104 * A.
cudaError_t LaunchGramPairs(const GramLaunch& launch, cudaStream_t stream);

// Launches a Gram that accumulates in pairs of floats, in tiles of 4 x 4 rows.
// A product is the exact pair of two floats, or off by 2^-150 where its low
// part underflows. A thread adds 64 of them at most and a warp its lanes in 5
// steps, each off by 2^-46 of what is added; warps are added in double.
// Together off by
//   kDoubleFloatUnit * A + n * 2^-150,
// whatever n is: at a whole chunk as much as the double kernel's bound. The
// second term is below 2^-46 of the two rows' norms: rows whose largest
// magnitude in a chunk lies outside of [2^-45, 2^56], and is not 0, have their
// pairs of that chunk summed in double instead, in 256 chains.
cudaError_t LaunchGramDoubleFloat(const GramLaunch& launch,
                                  cudaStream_t stream);
inline constexpr double kDoubleFloatUnit = 0x1p-46 * 70;

// Launches the Gram of int8 rows, for which none of the launchers above is
// used. Exact within a block of scales; with b blocks in the chunk off by (b +
// 8) * 2^-53 * A, or compensated by (b + 8) * 2^-104 * A.
cudaError_t LaunchGramInt8(const GramLaunch& launch, bool compensated,
                           cudaStream_t stream);

struct SumLaunch {
  InlineArgs args;
  const double* partial = nullptr;     // [chunk][value]
  const double* partial_lo = nullptr;  // of pairs, else null
  ArgArray<Slot> slots;
  int64_t num_slots = 0;
  int64_t num_values = 0;
  double* sums = nullptr;     // [slot][value]; may be pinned memory
  double* sums_lo = nullptr;  // of pairs, else null
};

// Adds the chunks of each slot, in order.
cudaError_t LaunchSums(const SumLaunch& launch, cudaStream_t stream);

// Bring the kernels of the Grams (and of the sums) to the device, as
// their first launches would otherwise do within a round.
cudaError_t LoadGram();
cudaError_t LoadGramDoubleFloat();
cudaError_t LoadGramPairs();
cudaError_t LoadGramInt8();

// Finds what the kernel that LaunchGram (LaunchGramDoubleFloat) starts takes:
// of more than 32 rows the one for pairs of panels, which does most.
cudaError_t FindGramUse(int num_rows, int dtype, KernelUse* use);
cudaError_t FindDoubleFloatUse(int dtype, KernelUse* use);

// The Gram of up to so many rows is a part of LaunchGram.
inline constexpr int kFewRows = 8;

// Launches the Gram as LaunchGram does. REQUIRES: launch.num_rows <= kFewRows.
cudaError_t LaunchGramFewRows(const GramLaunch& launch, cudaStream_t stream);

// Brings the kernels of LaunchGramFewRows to the device, as LoadGram does.
cudaError_t LoadGramFewRows();
// Finds what the kernel of LaunchGramFewRows takes, as FindGramUse does.
cudaError_t FindFewRowsUse(int num_rows, int dtype, KernelUse* use);

// --- The two ends of the cuBLAS Gram: rows to a tile of doubles, and matrices
// of the tile's batches to packed sums. Deterministic on every device:
// conversion is exact, batches are added in order. No atomics.
struct ConvertLaunch {
  InlineArgs args;
  ArgArray<const void*> rows;  // num_rows
  int num_rows = 0;
  int dtype = 0;         // agg::DType's value
  int64_t begin = 0;     // in the layout
  int num_elements = 0;  // >= 1
  int num_filled = 0;    // zeros from num_elements on
  double* tile = nullptr;
  int64_t row_stride = 0;
};
cudaError_t LaunchConvert(const ConvertLaunch& launch, cudaStream_t stream);

struct GatherLaunch {
  const double* matrices = nullptr;  // [batch][num_rows^2]
  int num_batches = 0;
  int num_rows = 0;
  double* sums = nullptr;  // packed; what is there is added to
};
cudaError_t LaunchGather(const GatherLaunch& launch, cudaStream_t stream);

// Brings both kernels to the device, as their first launches would.
cudaError_t LoadTiles();

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_GRAM_KERNEL_H_
