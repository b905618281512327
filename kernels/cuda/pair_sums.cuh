// Sums of products of 4 rows with 4 rows over a chunk, by 256 threads along
// the elements: what the kernels of gram_pairs.cu and gram_double_float.cu
// share. Device code, generic in how a sum is kept: a double, a pair of doubles
// or a pair of floats.
//
// The order of a sum is fixed: thread t takes elements t, t + 256, ..; lanes
// are added as a tree, warps in order. It is the same for every pair of rows,
// so equal rows have equal entries.
#ifndef AGG_KERNELS_CUDA_PAIR_SUMS_CUH_
#define AGG_KERNELS_CUDA_PAIR_SUMS_CUH_

#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/double_pair.h"

namespace agg::cuda {

inline constexpr int kPairWarps = 8;
inline constexpr int kPairThreads = kPairWarps * 32;
inline constexpr int kSide = 4;  // rows of a tile of pairs
inline constexpr int kTilePairs = kSide * kSide;

// Tiles (i, j), i <= j, of so many rows.
inline int NumPairTiles(int num_rows) {
  const auto side = static_cast<int>(CeilDivide(num_rows, kSide));
  return side * (side + 1) / 2;
}

// Adds the product of two floats, which is exact in double and as a pair.
__device__ __forceinline__ void AddProduct(float a, float b, double* sum) {
  *sum = fma(static_cast<double>(a), static_cast<double>(b), *sum);
}
__device__ __forceinline__ void AddProduct(float a, float b, DoublePair* sum) {
  *sum = PairAdd(*sum, static_cast<double>(a) * b);
}
__device__ __forceinline__ void AddProduct(float a, float b, FloatPair* sum) {
  *sum = PairAdd(*sum, TwoProduct(a, b));
}

__device__ __forceinline__ double AddSums(double a, double b) { return a + b; }
template <class Real>
__device__ __forceinline__ Pair<Real> AddSums(Pair<Real> a, Pair<Real> b) {
  return PairAdd(a, b);
}

// A sum in double, or in a pair of them.
__device__ __forceinline__ DoublePair Widen(double sum) { return {sum, 0.0}; }
__device__ __forceinline__ DoublePair Widen(DoublePair sum) { return sum; }
__device__ __forceinline__ DoublePair Widen(FloatPair sum) {
  return {static_cast<double>(sum.hi) + static_cast<double>(sum.lo), 0.0};
}

// The tile of pairs of a block, and its rows at its chunk's begin.
template <class Element>
struct PairTile {
  using Storage = typename Element::Storage;
  int first_i, first_j;  // rows of pair (0, 0)
  int num_elements;
  const Storage* a[kSide];
  const Storage* b[kSide];

  __device__ __forceinline__ PairTile(const GramLaunch& p, const Chunk& chunk,
                                      int tile_index) {
    int tile_i, tile_j;
    UpperPair(tile_index, &tile_i, &tile_j);
    first_i = tile_i * kSide;
    first_j = tile_j * kSide;
    num_elements = chunk.num_elements;
    const void* const* const rows = ArrayOf(p.args, p.rows);
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      // Rows beyond the last one repeat it; their pairs are not stored.
      const int i = min(first_i + r, p.num_rows - 1);
      const int j = min(first_j + r, p.num_rows - 1);
      a[r] = static_cast<const Storage*>(rows[i]) + chunk.begin;
      b[r] = static_cast<const Storage*>(rows[j]) + chunk.begin;
    }
  }

  // Warps that have elements: the others of a tiny chunk have nothing to add.
  __device__ __forceinline__ int num_warps() const {
    return min((num_elements + 31) / 32, kPairWarps);
  }
};

// Looks at no element (SumProducts).
struct SeesNothing {
  __device__ __forceinline__ void See(int, float) {}
};

// The thread's share of the tile's sums. `watch` sees each element of rows
// 0..3 (a) and 4..7 (b).
template <class Element, class Sum, class Watch>
__device__ __forceinline__ void SumProducts(const PairTile<Element>& tile,
                                            Watch* watch,
                                            Sum (&sums)[kTilePairs]) {
  for (int k = static_cast<int>(threadIdx.x); k < tile.num_elements;
       k += kPairThreads) {
    float column[kSide];
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      column[c] = Element::FromStorage(tile.b[c][k]);
      watch->See(kSide + c, column[c]);
    }
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const float row = Element::FromStorage(tile.a[r][k]);
      watch->See(r, row);
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        AddProduct(row, column[c], &sums[r * kSide + c]);
      }
    }
  }
}

// Sums of each warp, in shared memory.
struct WarpSums {
  double hi[kPairWarps][kTilePairs];
  double lo[kPairWarps][kTilePairs];  // of pairs of doubles
};

// Adds up the lanes of each of the first `num_warps` warps. The caller has to
// synchronise after it.
template <class Sum>
__device__ __forceinline__ void StoreWarpSums(const Sum (&sums)[kTilePairs],
                                              int num_warps, WarpSums* shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp >= num_warps) return;
#pragma unroll
  for (int pair = 0; pair < kTilePairs; ++pair) {
    Sum sum = sums[pair];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      sum = AddSums(sum, OfLaneBelow(sum, offset));
    }
    if (threadIdx.x % 32 != 0) continue;
    const DoublePair widened = Widen(sum);
    shared->hi[warp][pair] = widened.hi;
    if constexpr (sizeof(Sum) == sizeof(DoublePair)) {
      shared->lo[warp][pair] = widened.lo;
    }
  }
}

// The warps' sums of a pair, in order.
__device__ __forceinline__ double SumOfWarps(const WarpSums& shared, int pair,
                                             int num_warps) {
  double sum = 0.0;
  for (int w = 0; w < num_warps; ++w) sum += shared.hi[w][pair];
  return sum;
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_PAIR_SUMS_CUH_
