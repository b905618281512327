// Gram in pairs of doubles (algorithms.md 5.5), and the sums of partial
// results. Speed matters little here: a tensor needs pairs when its rows
// nearly cancel, and partial results are a thousandth of the rows.
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/double_pair.h"

namespace agg::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kSide = 4;  // rows of a tile of pairs
constexpr int kPairs = kSide * kSide;

// ----------------------------------------------------------------------------
// Per-element math

// Sum over the warp's lanes, in lane 0; a tree of fixed shape.
__device__ __forceinline__ DoublePair SumOfWarp(DoublePair sum) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    sum = PairAdd(sum, OfLaneBelow(sum, offset));
  }
  return sum;
}

// ----------------------------------------------------------------------------
// Kernels

// 4 rows against 4 rows, i <= j. Block (chunk, tile).
template <class Element>
__global__ void __launch_bounds__(kThreads)
    PairsKernel(GramLaunch p, int num_tiles) {
  using Storage = typename Element::Storage;
  __shared__ double shared_hi[kWarps][kPairs];
  __shared__ double shared_lo[kWarps][kPairs];
  const int64_t chunk_index = blockIdx.x / num_tiles;
  int tile_i, tile_j;
  UpperPair(static_cast<int>(blockIdx.x % num_tiles), &tile_i, &tile_j);
  const Chunk chunk = p.chunks[chunk_index];
  const Storage* a[kSide];
  const Storage* b[kSide];
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    // Rows beyond the last one repeat it; their pairs are not stored.
    const int i = min(tile_i * kSide + r, p.num_rows - 1);
    const int j = min(tile_j * kSide + r, p.num_rows - 1);
    a[r] = static_cast<const Storage*>(p.rows[i]) + chunk.begin;
    b[r] = static_cast<const Storage*>(p.rows[j]) + chunk.begin;
  }
  DoublePair sums[kPairs];
  for (int k = static_cast<int>(threadIdx.x); k < chunk.num_elements;
       k += kThreads) {
    double column[kSide];
#pragma unroll
    for (int c = 0; c < kSide; ++c) column[c] = Element::FromStorage(b[c][k]);
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const double row = Element::FromStorage(a[r][k]);
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        // The product of two floats is exact in double.
        sums[r * kSide + c] = PairAdd(sums[r * kSide + c], row * column[c]);
      }
    }
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    const DoublePair sum = SumOfWarp(sums[pair]);
    if (threadIdx.x % kWarpLanes == 0) {
      shared_hi[warp][pair] = sum.hi;
      shared_lo[warp][pair] = sum.lo;
    }
  }
  __syncthreads();
  if (threadIdx.x >= kPairs) return;
  const int pair = static_cast<int>(threadIdx.x);
  const int i = tile_i * kSide + pair / kSide;
  const int j = tile_j * kSide + pair % kSide;
  if (i > j || j >= p.num_rows) return;
  DoublePair sum;
  for (int w = 0; w < kWarps; ++w) {
    sum = PairAdd(sum, DoublePair{shared_hi[w][pair], shared_lo[w][pair]});
  }
  const int64_t to =
      chunk_index * PackedPair(p.num_rows, p.num_rows, p.num_rows) +
      PackedPair(i, j, p.num_rows);
  p.partial[to] = sum.hi;
  p.partial_lo[to] = sum.lo;
}

// One thread per slot and value.
__global__ void __launch_bounds__(kThreads) SumsKernel(SumLaunch p) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= p.num_slots * p.num_values) return;
  const int64_t slot = index / p.num_values;
  const int64_t value = index % p.num_values;
  DoublePair sum;
  for (int64_t chunk = p.slot_begins[slot]; chunk < p.slot_begins[slot + 1];
       ++chunk) {
    const int64_t from = chunk * p.num_values + value;
    if (p.partial_lo == nullptr) {
      sum.hi += p.partial[from];
    } else {
      sum = PairAdd(sum, DoublePair{p.partial[from], p.partial_lo[from]});
    }
  }
  p.sums[index] = sum.hi;
  if (p.sums_lo != nullptr) p.sums_lo[index] = sum.lo;
}

// ----------------------------------------------------------------------------
// Launcher

template <class Element>
cudaError_t LaunchPairs(const GramLaunch& p, cudaStream_t stream) {
  const auto side = static_cast<int>(CeilDivide(p.num_rows, kSide));
  const int num_tiles = side * (side + 1) / 2;
  return LaunchKernel(&PairsKernel<Element>,
                      static_cast<unsigned>(p.num_chunks * num_tiles), kThreads,
                      stream, p, num_tiles);
}

}  // namespace

cudaError_t LaunchGramPairs(const GramLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  switch (launch.dtype) {
    case 1:
      return LaunchPairs<F32>(launch, stream);
    case 2:
      return LaunchPairs<Bf16>(launch, stream);
    default:
      return LaunchPairs<F16>(launch, stream);
  }
}

cudaError_t LaunchSums(const SumLaunch& launch, cudaStream_t stream) {
  const int64_t num_sums = launch.num_slots * launch.num_values;
  if (num_sums == 0) return cudaSuccess;
  return LaunchKernel(&SumsKernel,
                      static_cast<unsigned>(CeilDivide(num_sums, kThreads)),
                      kThreads, stream, launch);
}

}  // namespace agg::cuda
