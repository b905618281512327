// Gram in pairs of doubles (server/combine/README.md 3.5), and the sums of
// partial results. Speed matters little here: a tensor needs pairs when its
// rows nearly cancel, and partial results are a thousandth of the rows.
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/pair_sums.cuh"
#include "kernels/double_pair.h"

//
//   kernel       called by        threads              result is in
//   PairsKernel  LaunchGramPairs  256 per chunk, tile  partial, partial_lo
//   SumsKernel   LaunchSums       1 per sum            sums, sums_lo
namespace agg::cuda {
namespace {

constexpr int kThreads = 256;  // of a block of SumsKernel

// Partial sums that are on their way at a time: a slice of 1 Mi elements
// has 64.
constexpr int kSumsAhead = 8;

// ----------------------------------------------------------------------------
// Device functions (others are in pair_sums.cuh)

// Adds those of kSumsAhead chunks, of which there are `num_chunks`, in order.
__device__ __forceinline__ void AddPartials(const SumLaunch& p, int64_t from,
                                            int64_t num_chunks,
                                            DoublePair* sum) {
  double hi[kSumsAhead] = {}, lo[kSumsAhead] = {};
#pragma unroll
  for (int c = 0; c < kSumsAhead; ++c) {
    if (c < num_chunks) hi[c] = p.partial[from + c * p.num_values];
  }
  if (p.partial_lo == nullptr) {
#pragma unroll
    for (int c = 0; c < kSumsAhead; ++c) {
      if (c < num_chunks) sum->hi += hi[c];
    }
    return;
  }
#pragma unroll
  for (int c = 0; c < kSumsAhead; ++c) {
    if (c < num_chunks) lo[c] = p.partial_lo[from + c * p.num_values];
  }
#pragma unroll
  for (int c = 0; c < kSumsAhead; ++c) {
    if (c < num_chunks) *sum = PairAdd(*sum, DoublePair{hi[c], lo[c]});
  }
}

// ----------------------------------------------------------------------------
// Kernels

// 4 rows against 4 rows, i <= j. Block (chunk, tile).
template <class Element>
__global__ void __launch_bounds__(kPairThreads)
    PairsKernel(const GramLaunch __grid_constant__ p, int num_tiles) {
  WarpSums& shared = BlockShared<WarpSums>();
  const int64_t chunk_index = blockIdx.x / num_tiles;
  const PairTile<Element> tile(p, ChunkAt(p, chunk_index),
                               static_cast<int>(blockIdx.x % num_tiles));
  DoublePair sums[kTilePairs];
  SeesNothing watch;
  SumProducts(tile, &watch, sums);
  StoreWarpSums(sums, tile.num_warps(), &shared);
  __syncthreads();
  if (threadIdx.x >= kTilePairs) return;
  const int pair = static_cast<int>(threadIdx.x);
  const int i = tile.first_i + pair / kSide;
  const int j = tile.first_j + pair % kSide;
  if (i > j || j >= p.num_rows) return;
  DoublePair sum;
  for (int w = 0; w < tile.num_warps(); ++w) {
    sum = PairAdd(sum, DoublePair{shared.hi[w][pair], shared.lo[w][pair]});
  }
  const int64_t to =
      chunk_index * PackedPair(p.num_rows, p.num_rows, p.num_rows) +
      PackedPair(i, j, p.num_rows);
  p.partial[to] = sum.hi;
  p.partial_lo[to] = sum.lo;
}

// One thread per slot and value.
__global__ void __launch_bounds__(kThreads)
    SumsKernel(const SumLaunch __grid_constant__ p) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= p.num_slots * p.num_values) return;
  const int64_t slot = index / p.num_values;
  const int64_t value = index % p.num_values;
  const Slot of = ArrayOf(p.args, p.slots)[slot];
  const int64_t end = of.first_chunk + NumChunks(of.num_elements);
  DoublePair sum;
  for (int64_t chunk = of.first_chunk; chunk < end; chunk += kSumsAhead) {
    AddPartials(p, chunk * p.num_values + value, end - chunk, &sum);
  }
  p.sums[index] = sum.hi;
  if (p.sums_lo != nullptr) p.sums_lo[index] = sum.lo;
}

// ----------------------------------------------------------------------------
// Launchers

template <class Element>
cudaError_t LaunchPairs(const GramLaunch& p, cudaStream_t stream) {
  const int num_tiles = NumPairTiles(p.num_rows);
  return LaunchKernel(&PairsKernel<Element>,
                      static_cast<unsigned>(p.num_chunks * num_tiles),
                      kPairThreads, stream, p, num_tiles);
}

}  // namespace

cudaError_t LaunchGramPairs(const GramLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  return WithElement(launch.dtype, [&](auto element) {
    return LaunchPairs<decltype(element)>(launch, stream);
  });
}

cudaError_t LaunchSums(const SumLaunch& launch, cudaStream_t stream) {
  const int64_t num_sums = launch.num_slots * launch.num_values;
  if (num_sums == 0) return cudaSuccess;
  return LaunchKernel(&SumsKernel,
                      static_cast<unsigned>(CeilDivide(num_sums, kThreads)),
                      kThreads, stream, launch);
}

cudaError_t LoadGramPairs() {
  const cudaError_t error = WithEachElement(
      [](auto element) { return LoadKernel(&PairsKernel<decltype(element)>); });
  return error == cudaSuccess ? LoadKernel(&SumsKernel) : error;
}

}  // namespace agg::cuda
