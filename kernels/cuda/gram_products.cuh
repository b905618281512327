// What a lane does with the elements that it has loaded: multiplies them into
// its entries of the tile pairs' C, and leaves those in shared memory. Apart
// from the kernels, which say who loads what (gram_kernel.cu).
//
// The products themselves are in device_ops.cuh. All pairs go through the tall
// ones, whatever the panel, so that equal rows have equal entries.
#ifndef AGG_KERNELS_CUDA_GRAM_PRODUCTS_CUH_
#define AGG_KERNELS_CUDA_GRAM_PRODUCTS_CUH_

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"

namespace agg::cuda {

constexpr int kEntries = kTileRows * kTileRows;  // of a tile pair's C
constexpr int kRectanglePairs = kMaxTiles * kMaxTiles;

// All pairs of the tiles' columns of 4 elements.
template <int kTiles, int kPairs>
__device__ __forceinline__ void MultiplyColumns(const double (&a)[kTiles],
                                                double (&c)[kPairs][2]) {
#pragma unroll
  for (int index = 0; index < NumTallProducts(kTiles); ++index) {
    const TallProduct t = TallProductOf(kTiles, index);
    double(&of_first)[2] = c[TilePair(t.first, t.column)];
    if (t.second < 0) {
      MultiplyHalfTall(a[t.first], a[t.column], of_first);
    } else {
      MultiplyTallTiles(a[t.first], a[t.second], a[t.column], of_first,
                        c[TilePair(t.second, t.column)]);
    }
  }
}

template <class Element, int kTiles>
__device__ __forceinline__ void MultiplyTriangle(
    const Packed (&rows)[kTiles], double (&c)[kTiles * (kTiles + 1) / 2][2]) {
#pragma unroll
  for (int e = 0; e < Element::kPerLoad; ++e) {
    double a[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) a[t] = Element::ToFloat(rows[t], e);
    MultiplyColumns(a, c);
  }
}

// All pairs of a tile of the first kMaxTiles with one of the others.
template <class Element>
__device__ __forceinline__ void MultiplyRectangle(
    const Packed (&rows)[2 * kMaxTiles], double (&c)[kRectanglePairs][2]) {
#pragma unroll
  for (int e = 0; e < Element::kPerLoad; ++e) {
    double column[kMaxTiles];
#pragma unroll
    for (int j = 0; j < kMaxTiles; ++j) {
      column[j] = Element::ToFloat(rows[kMaxTiles + j], e);
    }
#pragma unroll
    for (int i = 0; i < kMaxTiles; i += 2) {
      const double first = Element::ToFloat(rows[i], e);
      const double second = Element::ToFloat(rows[i + 1], e);
#pragma unroll
      for (int j = 0; j < kMaxTiles; ++j) {
        MultiplyTallTiles(first, second, column[j], c[i * kMaxTiles + j],
                          c[(i + 1) * kMaxTiles + j]);
      }
    }
  }
}

// Leaves the lane's entries of one C in shared memory.
__device__ __forceinline__ void StoreEntries(const double (&c)[2], int lane,
                                             bool transposed,
                                             double (&shared)[kEntries]) {
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    const int m = lane / kQuad;
    const int n = lane % kQuad * 2 + v;
    shared[transposed ? TileEntry(n, m) : TileEntry(m, n)] = c[v];
  }
}

template <int kTiles, int kPairs>
__device__ __forceinline__ void StoreTriangle(
    const double (&c)[kPairs][2], int lane,
    double (&shared)[kPairs][kEntries]) {
#pragma unroll
  for (int index = 0; index < NumTallProducts(kTiles); ++index) {
    const TallProduct t = TallProductOf(kTiles, index);
    const int pair = TilePair(t.first, t.column);
    StoreEntries(c[pair], lane, t.first > t.column, shared[pair]);
    if (t.second < 0) continue;
    const int other = TilePair(t.second, t.column);
    StoreEntries(c[other], lane, t.second > t.column, shared[other]);
  }
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_GRAM_PRODUCTS_CUH_
