// The Gram matrix in pairs of floats, for devices whose doubles are slow: 13
// float32 operations per product, where one double fma costs as much as 64 (or
// 32) of them. gram_kernel.h says what a result is worth.
//
//   kernel             called by              a block of 256 threads does
//   DoubleFloatKernel  LaunchGramDoubleFloat  one chunk of 4 rows with 4 rows
//
// Here a tile is 4 x 4 pairs of rows: 16 sums of two floats and 8 elements are
// what a thread's registers hold. pair_sums.cuh has the loop.
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/pair_sums.cuh"
#include "kernels/double_pair.h"

namespace agg::cuda {
namespace {

// ----------------------------------------------------------------------------
// Device functions: which rows pairs of floats will do for

// A row's largest magnitude in a chunk must be 0 or between these. Above,
// 16 Ki products might overflow: 2^14 * (2^56)^2 = 2^126. Below, what products
// lose to underflow (at most 2^-150 each, 2^-136 a chunk) might be more than
// 2^-46 of the two rows' norms, which are at least (2^-45)^2 = 2^-90.
constexpr uint32_t kLeastBits = (127u - 45u) << 23;
constexpr uint32_t kMostBits = (127u + 56u) << 23;

// The largest magnitudes of a tile's 8 rows, as bits: for floats without their
// sign the order of the bits is that of the values, and a NaN is the largest.
struct Magnitudes {
  uint32_t largest[2 * kSide] = {};

  __device__ __forceinline__ void See(int row, float value) {
    largest[row] = max(largest[row], BitsOfFloat(value) & 0x7fffffffu);
  }

  // Three bits per row: it has an element that is not zero, one that is large
  // enough, one that is too large. A row's bits are those of all threads.
  __device__ __forceinline__ uint32_t Flags() const {
    uint32_t flags = 0;
#pragma unroll
    for (int row = 0; row < 2 * kSide; ++row) {
      const uint32_t of_row = (largest[row] > 0 ? 1u : 0u) |
                              (largest[row] >= kLeastBits ? 2u : 0u) |
                              (largest[row] > kMostBits ? 4u : 0u);
      flags |= of_row << (3 * row);
    }
    return flags;
  }
};

// Whether pairs of floats will do for a row.
__device__ __forceinline__ bool IsFit(uint32_t flags, int row) {
  const uint32_t of_row = flags >> (3 * row) & 7u;
  return of_row == 0u || of_row == 3u;
}

// By all threads of the block: the flags of all of them. shared holds a word
// for each warp; what the block has written to shared memory before is there
// afterwards.
__device__ __forceinline__ uint32_t
FlagsOfBlock(uint32_t flags, uint32_t (&shared)[kPairWarps]) {
  flags = OrOfWarp(flags);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = flags;
  __syncthreads();
  uint32_t all = 0;
  for (int w = 0; w < kPairWarps; ++w) all |= shared[w];
  return all;
}

__device__ __forceinline__ bool AllFit(uint32_t flags) {
  bool all_fit = true;
  for (int row = 0; row < 2 * kSide; ++row) {
    all_fit = all_fit && IsFit(flags, row);
  }
  return all_fit;
}

// ----------------------------------------------------------------------------
// Kernels

// 4 rows against 4 rows, i <= j. Block (chunk, tile). A pair with a row that is
// not fit is summed again in double; others are not touched by that, so that a
// pair's bits depend on its own two rows.
template <class Element>
__global__ void __launch_bounds__(kPairThreads)
    DoubleFloatKernel(const GramLaunch __grid_constant__ p, int num_tiles) {
  WarpSums& shared = BlockShared<WarpSums>();
  auto& shared_flags = BlockShared<uint32_t[kPairWarps]>();
  const int64_t chunk_index = blockIdx.x / num_tiles;
  const PairTile<Element> tile(p, ChunkAt(p, chunk_index),
                               static_cast<int>(blockIdx.x % num_tiles));
  const int num_warps = tile.num_warps();
  uint32_t flags;
  {
    FloatPair sums[kTilePairs];
    Magnitudes magnitudes;
    SumProducts(tile, &magnitudes, sums);
    StoreWarpSums(sums, num_warps, &shared);
    flags = FlagsOfBlock(magnitudes.Flags(), shared_flags);
  }
  const int pair = static_cast<int>(threadIdx.x) % kTilePairs;
  double sum = SumOfWarps(shared, pair, num_warps);
  if (!AllFit(flags)) {  // the same for all threads of the block
    __syncthreads();
    double sums[kTilePairs] = {};
    SeesNothing watch;
    SumProducts(tile, &watch, sums);
    StoreWarpSums(sums, num_warps, &shared);
    __syncthreads();
    if (!IsFit(flags, pair / kSide) || !IsFit(flags, kSide + pair % kSide)) {
      sum = SumOfWarps(shared, pair, num_warps);
    }
  }
  const int i = tile.first_i + pair / kSide;
  const int j = tile.first_j + pair % kSide;
  if (threadIdx.x >= kTilePairs || i > j || j >= p.num_rows) return;
  p.partial[chunk_index * PackedPair(p.num_rows, p.num_rows, p.num_rows) +
            PackedPair(i, j, p.num_rows)] = sum;
}

// ----------------------------------------------------------------------------
// Launchers

template <class Element>
cudaError_t Launch(const GramLaunch& p, cudaStream_t stream) {
  const int num_tiles = NumPairTiles(p.num_rows);
  return LaunchKernel(&DoubleFloatKernel<Element>,
                      static_cast<unsigned>(p.num_chunks * num_tiles),
                      kPairThreads, stream, p, num_tiles);
}

}  // namespace

cudaError_t LaunchGramDoubleFloat(const GramLaunch& launch,
                                  cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  return WithElement(launch.dtype, [&](auto element) {
    return Launch<decltype(element)>(launch, stream);
  });
}

cudaError_t LoadGramDoubleFloat() {
  return WithEachElement([](auto element) {
    return LoadKernel(&DoubleFloatKernel<decltype(element)>);
  });
}

cudaError_t FindDoubleFloatUse(int dtype, KernelUse* use) {
  return WithElement(dtype, [&](auto element) {
    return FindUse(&DoubleFloatKernel<decltype(element)>, kPairThreads, use);
  });
}

}  // namespace agg::cuda
