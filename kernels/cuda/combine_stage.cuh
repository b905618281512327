// Sources, in shared memory, of the pieces that Update's kernels read. Device
// code.
#ifndef AGG_KERNELS_CUDA_COMBINE_STAGE_CUH_
#define AGG_KERNELS_CUDA_COMBINE_STAGE_CUH_

#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/update_kernel.h"

namespace agg::cuda {

// Rows whose sources fit the stage: whole groups.
inline constexpr int kStageRows = 256;

// A block's stage. It has the sources of a step's pieces, in the order in which
// they are read: the rows, then of each quad the parameters and the arrays of
// state, from the chunk's begin on. Two pieces are a group; a null source: the
// group has no second piece. So rows and arrays are fetched alike, and one load
// brings what a group needs.
template <class Element>
struct CombineStage {
  static constexpr int kArrayPieces = 3 * kQuads<Element>;
  static constexpr int kPieces = kStageRows + kArrayPieces + kArrayPieces % 2;
  alignas(16) const char* sources[kPieces];  // first: Combiner adds to it
  alignas(16) int64_t ends[kPieces];  // the chunk's: bytes from the source on
  // Scales of the rows, from the chunk's begin on; for int8 only.
  alignas(16) const float* scales[kHasScales<Element> ? kStageRows : 1];
  alignas(16) double coefficients[kStageRows];

  // Sets piece `i` to row `row` of the launch.
  __device__ __forceinline__ void SetRow(int i, const UpdateLaunch& p,
                                         const Chunk& chunk, int row) {
    const auto* const from =
        static_cast<const char*>(ArrayOf(p.args, p.rows)[row]);
    sources[i] = from + BytesOf<Element>(chunk.begin);
    ends[i] = BytesOf<Element>(chunk.num_elements);
    if constexpr (kHasScales<Element>) {
      scales[i] = ScalesAt(from, p.scale_offset) + chunk.begin / kScaleElements;
    }
    coefficients[i] =
        ArrayOf(p.args, p.coefficients)[int64_t{chunk.slot} * p.num_rows + row];
  }

  // Sets piece `i` to quad `quad` of an array: array 0 is the parameters.
  __device__ __forceinline__ void SetArray(int i, const UpdateLaunch& p,
                                           const Chunk& chunk, int array,
                                           int quad) {
    const float* const from = array == 0   ? p.master
                              : array == 1 ? p.state0
                                           : p.state1;
    const int64_t at = quad * kQuadElements;
    sources[i] = reinterpret_cast<const char*>(from + (chunk.begin + at));
    ends[i] = (chunk.num_elements - at) * sizeof(float);
  }

  // Fills the stage with `num_rows` rows from `first` on, and if they are the
  // last ones with `num_arrays` arrays. All threads of the block call it.
  // Returns how many groups that is.
  __device__ __forceinline__ int Fill(const UpdateLaunch& p, const Chunk& chunk,
                                      int first, int num_rows, int num_arrays) {
    if (first + num_rows < p.num_rows) num_arrays = 0;
    const int num_pieces = num_rows + num_arrays * kQuads<Element>;
    const int num_groups = (num_pieces + 1) / kGroupPieces;
    __syncthreads();  // what was there is used up
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < num_groups * kGroupPieces;
         i += kUpdateThreads) {
      const int piece = i - num_rows;  // of the arrays
      if (i < num_rows) {
        SetRow(i, p, chunk, first + i);
      } else if (i < num_pieces) {
        SetArray(i, p, chunk, piece % num_arrays, piece / num_arrays);
      } else {
        sources[i] = nullptr;
        ends[i] = 0;
      }
      if constexpr (kHasScales<Element>) {
        if (i == num_rows && i < kStageRows) scales[i] = nullptr;
      }
    }
    __syncthreads();
    return num_groups;
  }
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_COMBINE_STAGE_CUH_
