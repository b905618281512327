// The Gram matrix of int8 rows. The products of two rows over one block of
// scales are added in integers, which is exact; that sum is multiplied by the
// two scales in double. So one double product is made for 256 elements, and
// neither fp64 tensor cores nor pairs of floats are asked for, whatever the
// device.
//
//   kernel      called by       a block of 256 threads does
//   Int8Kernel  LaunchGramInt8  one chunk of 4 rows with 4 rows
//
// A warp takes one block of scales at a time: 8 elements per lane and row. What
// the warps have added is added up in their order.
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/pair_sums.cuh"
#include "kernels/double_pair.h"

namespace agg::cuda {
namespace {

constexpr int kLaneElements = kScaleElements / 32;

// ----------------------------------------------------------------------------
// Device functions

// A lane's 8 elements of a row, the first in the lowest byte.
struct Eight {
  uint32_t words[2];
};

__device__ __forceinline__ Eight LoadEight(const int8_t* at, int num_elements) {
  if (num_elements >= kLaneElements) {
    const uint2 v = LoadConstant(reinterpret_cast<const uint2*>(at));
    return Eight{{v.x, v.y}};
  }
  Eight x{{0u, 0u}};
#pragma unroll
  for (int e = 0; e < kLaneElements; ++e) {
    if (e < num_elements) {
      x.words[e / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(at[e]))
                        << (e % 4 * 8);
    }
  }
  return x;
}

// The tile's 16 sums over the elements that the warp's lanes have; the lanes 0
// to 15 return one each.
__device__ __forceinline__ int32_t DotOfTile(const PairTile<I8>& tile, int at,
                                             int left) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Eight column[kSide];
#pragma unroll
  for (int c = 0; c < kSide; ++c) column[c] = LoadEight(tile.b[c] + at, left);
  int32_t own = 0;
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    const Eight row = LoadEight(tile.a[r] + at, left);
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      const int32_t dot = SumOfWarp(
          DotOfBytes(row.words[0], column[c].words[0],
                     DotOfBytes(row.words[1], column[c].words[1], 0)));
      if (lane == r * kSide + c) own = dot;
    }
  }
  return own;
}

// Adds dot * scale, whose product is exact as a pair.
__device__ __forceinline__ void AddScaled(double scale, int32_t dot,
                                          double* sum) {
  *sum = fma(scale, static_cast<double>(dot), *sum);
}
__device__ __forceinline__ void AddScaled(double scale, int32_t dot,
                                          DoublePair* sum) {
  *sum = PairAdd(*sum, TwoProduct(scale, static_cast<double>(dot)));
}

// Adds up what the warps have for a pair, in order, and stores it at `to`.
template <class Sum>
__device__ __forceinline__ void StoreTotal(const WarpSums& shared, int pair,
                                           const GramLaunch& p, int64_t to) {
  DoublePair total;
  for (int w = 0; w < kPairWarps; ++w) {
    const DoublePair part{shared.hi[w][pair], shared.lo[w][pair]};
    if constexpr (sizeof(Sum) == sizeof(DoublePair)) {
      total = PairAdd(total, part);
    } else {
      total.hi += part.hi;
    }
  }
  p.partial[to] = total.hi;
  if constexpr (sizeof(Sum) == sizeof(DoublePair)) p.partial_lo[to] = total.lo;
}

// A row's scales from the chunk's begin on.
__device__ __forceinline__ const float* ScalesOf(const GramLaunch& p, int row,
                                                 const Chunk& chunk) {
  return ScalesAt(ArrayOf(p.args, p.rows)[min(row, p.num_rows - 1)],
                  p.scale_offset) +
         chunk.begin / kScaleElements;
}

// ----------------------------------------------------------------------------
// Kernels

// 4 rows against 4 rows, i <= j. Block (chunk, tile).
template <class Sum>
__global__ void __launch_bounds__(kPairThreads)
    Int8Kernel(const GramLaunch __grid_constant__ p, int num_tiles) {
  WarpSums& shared = BlockShared<WarpSums>();
  const int64_t chunk_index = blockIdx.x / num_tiles;
  const Chunk chunk = ChunkAt(p, chunk_index);
  const PairTile<I8> tile(p, chunk, static_cast<int>(blockIdx.x % num_tiles));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int i = tile.first_i + lane % kTilePairs / kSide;
  const int j = tile.first_j + lane % kTilePairs % kSide;
  const float* const scales_i = ScalesOf(p, i, chunk);
  const float* const scales_j = ScalesOf(p, j, chunk);
  Sum sum = {};
  for (int block = warp; block * kScaleElements < tile.num_elements;
       block += kPairWarps) {
    const int at = block * kScaleElements + lane * kLaneElements;
    const int32_t dot = DotOfTile(tile, at, tile.num_elements - at);
    // 48 bits: exact.
    const double scale = static_cast<double>(scales_i[block]) *
                         static_cast<double>(scales_j[block]);
    AddScaled(scale, dot, &sum);
  }
  if (lane < kTilePairs) {
    const DoublePair widened = Widen(sum);
    shared.hi[warp][lane] = widened.hi;
    shared.lo[warp][lane] = widened.lo;
  }
  __syncthreads();
  if (threadIdx.x >= kTilePairs || i > j || j >= p.num_rows) return;
  StoreTotal<Sum>(shared, lane, p,
                  chunk_index * PackedPair(p.num_rows, p.num_rows, p.num_rows) +
                      PackedPair(i, j, p.num_rows));
}

// ----------------------------------------------------------------------------
// Launchers

template <class Sum>
cudaError_t Launch(const GramLaunch& p, cudaStream_t stream) {
  const int num_tiles = NumPairTiles(p.num_rows);
  return LaunchKernel(&Int8Kernel<Sum>,
                      static_cast<unsigned>(p.num_chunks * num_tiles),
                      kPairThreads, stream, p, num_tiles);
}

}  // namespace

cudaError_t LaunchGramInt8(const GramLaunch& launch, bool compensated,
                           cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  return compensated ? Launch<DoublePair>(launch, stream)
                     : Launch<double>(launch, stream);
}

cudaError_t LoadGramInt8() {
  const cudaError_t error = LoadKernel(&Int8Kernel<double>);
  return error == cudaSuccess ? LoadKernel(&Int8Kernel<DoublePair>) : error;
}

}  // namespace agg::cuda
