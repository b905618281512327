// The weighted sum of rows, a few elements per thread. Device code.
#ifndef AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_
#define AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_

#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/update_kernel.h"

namespace agg::cuda {

inline constexpr int kCombineThreads = 256;  // of a block
inline constexpr int kPerThread = 4;  // elements at a time: 16 bytes of float32
inline constexpr int kStageRows = 256;  // rows whose pointers fit the stage

// Row pointers and coefficients of a block, in shared memory.
struct Stage {
  const void* rows[kStageRows];
  double coefficients[kStageRows];
};

// Adds the staged rows in order. Loads of kBatch rows are under way at once:
// each on its own would leave the memory idle.
template <class Element, bool kWhole>
__device__ __forceinline__ void AddRows(const Stage& stage, int num_rows,
                                        int64_t scale_offset, int64_t at,
                                        int left, double (&sum)[kPerThread]) {
  using Storage = typename Element::Storage;
  constexpr int kBatch = 4;
  for (int first = 0; first < num_rows; first += kBatch) {
    float x[kBatch][kPerThread];
    float scale[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b < num_rows) {  // for all threads of the block
        LoadFour<Element>(
            static_cast<const Storage*>(stage.rows[first + b]) + at,
            kWhole ? kPerThread : left, x[b]);
        if constexpr (kHasScales<Element>) {
          scale[b] = ScalesAt(stage.rows[first + b],
                              scale_offset)[at / kScaleElements];
        }
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b < num_rows) {
        const double coefficient = stage.coefficients[first + b];
#pragma unroll
        for (int e = 0; e < kPerThread; ++e) {
          double value = x[b][e];
          // 24 and 8 bits: exact.
          if constexpr (kHasScales<Element>) value *= scale[b];
          sum[e] = fma(coefficient, value, sum[e]);
        }
      }
    }
  }
}

// Combines elements [at, at + 4) of the layout, `left` (perhaps <= 0) of them.
// Every thread of the block calls it, the same number of times; `*staged` is
// false at first.
template <class Element>
__device__ __forceinline__ void Combine(const UpdateLaunch& p, int slot,
                                        int64_t at, int left, Stage* stage,
                                        bool* staged,
                                        float (&gradient)[kPerThread]) {
  double sum[kPerThread] = {};
  for (int first = 0; first < p.num_rows; first += kStageRows) {
    const int num_rows = min(kStageRows, p.num_rows - first);
    if (!*staged || p.num_rows > kStageRows) {
      __syncthreads();  // the last stage is used up
      for (int r = static_cast<int>(threadIdx.x); r < num_rows;
           r += kCombineThreads) {
        stage->rows[r] = ArrayOf(p.args, p.rows)[first + r];
        stage->coefficients[r] = ArrayOf(
            p.args, p.coefficients)[static_cast<int64_t>(slot) * p.num_rows +
                                    first + r];
      }
      __syncthreads();
      *staged = true;
    }
    if (left >= kPerThread) {
      AddRows<Element, true>(*stage, num_rows, p.scale_offset, at, left, sum);
    } else if (left > 0) {
      AddRows<Element, false>(*stage, num_rows, p.scale_offset, at, left, sum);
    }
  }
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) gradient[e] = static_cast<float>(sum[e]);
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_
