// The weighted sum of rows, and the parameters and the state of the same
// elements, in the order in which Update's kernels use them. Device code.
#ifndef AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_
#define AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_

#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/update_kernel.h"

namespace agg::cuda {

inline constexpr int kStageRows = 256;  // rows whose pointers fit the stage

// What a block has in shared memory: row pointers and coefficients, and its
// ring.
template <class Element>
struct CombineShared {
  const void* rows[kStageRows];
  double coefficients[kStageRows];
  RingSlots<Element> ring;
};

// A thread's way through its block's chunk: kPerStep elements of the block at a
// time, of which the thread has kQuads quads. Of each step it takes the sum of
// the rows, then the quads' parameters and state. All of it is fetched ahead,
// across steps. All threads of the block make the same calls, those beyond the
// chunk's end, too.
template <class Element>
class Combiner {
 public:
  // `num_arrays`: 0, or 1 for the parameters and 1 for each array of state.
  __device__ __forceinline__ Combiner(const UpdateLaunch& p, const Chunk& chunk,
                                      int num_arrays,
                                      CombineShared<Element>* shared)
      : p_(p),
        chunk_(chunk),
        num_arrays_(num_arrays),
        shared_(*shared),
        ring_(&shared->ring) {}

  // The thread's elements of quad `quad` begin here, from the chunk's begin on.
  __device__ __forceinline__ static int Offset(int base, int quad) {
    return base + WarpOffset() + quad * kQuadElements +
           static_cast<int>(threadIdx.x) % kUpdateLanes * kPerThread;
  }

  // The sums of the step at `base`, rounded to float32. Steps come in order.
  __device__ __forceinline__ void Sum(
      int base, float (&sums)[kQuads<Element>][kPerThread]) {
    double sum[kQuads<Element>][kPerThread] = {};
    for (int first = 0; first < p_.num_rows; first += kStageRows) {
      const int num_rows = min(kStageRows, p_.num_rows - first);
      if (base == 0 || p_.num_rows > kStageRows) {
        Fill(first, num_rows);
        Begin(base, first, num_rows);
      }
      for (int r = 0; r < num_rows; ++r) AddRow(base, r, sum);
    }
#pragma unroll
    for (int q = 0; q < kQuads<Element>; ++q) {
#pragma unroll
      for (int e = 0; e < kPerThread; ++e) {
        sums[q][e] = static_cast<float>(sum[q][e]);
      }
    }
  }

  // The next array of the next quad: the parameters, then the arrays of state.
  __device__ __forceinline__ void NextArray(float (&x)[kPerThread]) {
    Next();
    ring_.Floats(x);
  }

 private:
  __device__ __forceinline__ static int WarpOffset() {
    return static_cast<int>(threadIdx.x) / kUpdateLanes *
           (kQuads<Element> * kQuadElements);
  }

  __device__ __forceinline__ static int LaneByte() {
    return static_cast<int>(threadIdx.x) % kUpdateLanes * kPieceLaneBytes;
  }

  // Brings `num_rows` rows from `first` on to the stage.
  __device__ __forceinline__ void Fill(int first, int num_rows) {
    __syncthreads();  // the last stage is used up
    for (int r = static_cast<int>(threadIdx.x); r < num_rows;
         r += kUpdateThreads) {
      shared_.rows[r] = ArrayOf(p_.args, p_.rows)[first + r];
      shared_.coefficients[r] = ArrayOf(
          p_.args,
          p_.coefficients)[static_cast<int64_t>(chunk_.slot) * p_.num_rows +
                           first + r];
    }
    __syncthreads();
  }

  // Starts the first pieces of what is used until the stage is filled again:
  // all steps, if all rows fit the stage, else its rows of one step.
  __device__ __forceinline__ void Begin(int base, int first, int num_rows) {
    num_rows_ = num_rows;
    has_arrays_ = num_arrays_ > 0 && first + num_rows == p_.num_rows;
    end_ = p_.num_rows > kStageRows ? base + 1 : chunk_.num_elements;
    base_ = base;
    const int offset = base + WarpOffset();
    row_at_ = (chunk_.begin + offset) * kBytes + LaneByte();
    row_left_ = (chunk_.num_elements - offset) * kBytes - LaneByte();
    row_ = array_ = quad_ = 0;
    ring_.Restart();
    for (int i = 0; i < kRingPieces - 1; ++i) StartNext();
  }

  __device__ __forceinline__ void Next() {
    ring_.Await();
    StartNext();
  }

  // Starts the piece that comes kRingPieces - 1 after the one that is read.
  __device__ __forceinline__ void StartNext() {
    if (base_ < end_) {
      bool is_last;
      if (row_ < num_rows_) {
        StartRow();
        is_last = ++row_ == num_rows_ && !has_arrays_;
      } else {
        is_last = StartArray();
      }
      if (is_last) {
        row_ = quad_ = 0;
        base_ += kPerStep<Element>;
        row_at_ += kPerStep<Element> * kBytes;
        row_left_ -= kPerStep<Element> * kBytes;
      }
    }
    ring_.Commit();
  }

  __device__ __forceinline__ void StartRow() {
    const auto* const row = static_cast<const char*>(shared_.rows[row_]);
    ring_.Start(row + row_at_, row_left_);
    if constexpr (kHasScales<Element>) {
      const int offset = base_ + WarpOffset();
      const int left = chunk_.num_elements - offset;
      ring_.StartScales(
          ScalesAt(row, p_.scale_offset),
          (chunk_.begin + offset) / kScaleElements,
          min((left + kScaleElements - 1) / kScaleElements, kPieceScales));
    }
  }

  // Returns whether it was the last one of the step.
  __device__ __forceinline__ bool StartArray() {
    const float* const from = array_ == 0   ? p_.master
                              : array_ == 1 ? p_.state0
                                            : p_.state1;
    const int offset = Offset(base_, quad_);
    ring_.Start(
        from + (chunk_.begin + offset),
        (chunk_.num_elements - offset) * static_cast<int>(sizeof(float)));
    if (++array_ < num_arrays_) return false;
    array_ = 0;
    return ++quad_ == kQuads<Element>;
  }

  // Adds row `r` of the stage.
  __device__ __forceinline__ void AddRow(
      int base, int r, double (&sum)[kQuads<Element>][kPerThread]) {
    Next();
    const double coefficient = shared_.coefficients[r];
#pragma unroll
    for (int q = 0; q < kQuads<Element>; ++q) {
      float x[kPerThread];
      ring_.Elements(q, x);
      double scale = 1.0;
      if constexpr (kHasScales<Element>) {
        scale =
            ring_.Scale((chunk_.begin + base + WarpOffset()) / kScaleElements,
                        q * kQuadElements / kScaleElements);
      }
#pragma unroll
      for (int e = 0; e < kPerThread; ++e) {
        double value = x[e];
        // 24 and 8 bits: exact.
        if constexpr (kHasScales<Element>) value *= scale;
        sum[q][e] = fma(coefficient, value, sum[q][e]);
      }
    }
  }

  static constexpr int kBytes = sizeof(typename Element::Storage);
  static constexpr int kPieceScales =
      kQuads<Element> * kQuadElements / kScaleElements;

  const UpdateLaunch& p_;
  const Chunk& chunk_;
  const int num_arrays_;
  CombineShared<Element>& shared_;
  PieceRing<Element> ring_;
  // What is started next, of the step at `base_`: row `row_` of the stage's,
  // of which the lane has row_left_ bytes at row_at_; behind the rows array
  // `array_` of quad `quad_`. Nothing from `end_` on.
  int num_rows_ = 0;
  bool has_arrays_ = false;
  int end_ = 0;
  int base_ = 0;
  int64_t row_at_ = 0;
  int row_left_ = 0;
  int row_ = 0;
  int array_ = 0;
  int quad_ = 0;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_
