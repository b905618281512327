//   kernel      called by       a block of 256 threads does
//   ReadKernel  LaunchReadPeak  every num_blocks-th 16 KiB of the rows
//   MixKernel   LaunchMixPeak   every num_blocks-th 2 Ki elements of everything
//   Fp64Kernel  LaunchFp64Peak  products in registers (128 threads)
#include "kernels/cuda/device_ops.cuh"
#include "tests/bench/device_peaks.h"

namespace agg {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 4;     // of a thread of ReadKernel, at a time
constexpr int kElements = 8;  // of a thread of MixKernel, at a time
constexpr int kMostArrays = 3;
constexpr int kRowsAtOnce = 4;  // whose loads a thread has under way
constexpr int kArrayLoads = kElements * 4 / 16;
constexpr unsigned kNever = 0x9e3779b9u;

__device__ __forceinline__ unsigned SumOf(uint4 v) {
  return v.x + v.y + v.z + v.w;
}

__global__ void __launch_bounds__(kThreads)
    ReadKernel(const StreamPeak __grid_constant__ p, int num_blocks) {
  constexpr int kTile = kThreads * kLoads;
  const int64_t num_loads = p.num_elements * p.element_bytes / 16;
  const int64_t num_tiles = (num_loads + kTile - 1) / kTile;
  unsigned sum = 0;
  for (int64_t task = blockIdx.x; task < num_tiles * p.num_rows;
       task += num_blocks) {
    const auto* const row = static_cast<const uint4*>(p.rows[task / num_tiles]);
    const int64_t begin = task % num_tiles * kTile + threadIdx.x;
    uint4 loads[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t at = begin + i * kThreads;
      if (at < num_loads) loads[i] = cuda::LoadConstant(row + at);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum += SumOf(loads[i]);
  }
  if (sum == kNever) *p.sink = sum;
}

// kRowLoads: of a thread, for its elements of a row.
template <int kRowLoads>
__global__ void __launch_bounds__(kThreads)
    MixKernel(const StreamPeak __grid_constant__ p, int num_blocks) {
  const int64_t num_tiles = p.num_elements / (kThreads * kElements);
  for (int64_t tile = blockIdx.x; tile < num_tiles; tile += num_blocks) {
    uint4 values[kMostArrays][kArrayLoads] = {};
#pragma unroll
    for (int a = 0; a < kMostArrays; ++a) {
      if (a >= p.num_arrays) continue;
      const auto* const from = reinterpret_cast<const uint4*>(p.arrays[a]) +
                               tile * kThreads * kArrayLoads + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kArrayLoads; ++i) values[a][i] = from[i * kThreads];
    }
    unsigned sum = 0;
    const int64_t begin = tile * kThreads * kRowLoads + threadIdx.x;
    for (int r = 0; r < p.num_rows; r += kRowsAtOnce) {
      uint4 loads[kRowsAtOnce][kRowLoads] = {};
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j) {
        if (r + j >= p.num_rows) continue;
        const auto* const from =
            static_cast<const uint4*>(p.rows[r + j]) + begin;
#pragma unroll
        for (int i = 0; i < kRowLoads; ++i) {
          loads[j][i] = cuda::LoadConstant(from + i * kThreads);
        }
      }
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < kRowLoads; ++i) sum += SumOf(loads[j][i]);
      }
    }
    // Nearly never, but the compiler has to wait for all rows, and to store.
    const unsigned flipped = sum == kNever ? 1 : 0;
#pragma unroll
    for (int a = 0; a < kMostArrays; ++a) {
      if (a >= p.num_arrays) continue;
      auto* const to = reinterpret_cast<uint4*>(p.arrays[a]) +
                       tile * kThreads * kArrayLoads + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kArrayLoads; ++i) {
        values[a][i].x ^= flipped;
        to[i * kThreads] = values[a][i];
      }
    }
  }
}

constexpr int kFp64Threads = 128;
constexpr int kProducts = 16;  // as many accumulators as the Gram kernel's

// kTall: 16 rows per product, two accumulators.
template <bool kTall>
__global__ void __launch_bounds__(kFp64Threads)
    Fp64Kernel(int num_rounds, double* sink) {
  double c[kProducts][2] = {};
  const double a = 1.0 + threadIdx.x;
  const double b = 1.0 / a;
  for (int round = 0; round < num_rounds; ++round) {
#pragma unroll
    for (int p = 0; p < kProducts; p += 2) {
      if constexpr (kTall) {
        cuda::MultiplyTallTiles(a, b, b, c[p], c[p + 1]);
      } else {
        cuda::MultiplyTiles(a, b, c[p]);
        cuda::MultiplyTiles(b, b, c[p + 1]);
      }
    }
  }
  double sum = 0.0;
#pragma unroll
  for (int p = 0; p < kProducts; ++p) sum += c[p][0] + c[p][1];
  if (sum == -1.0) *sink = sum;  // never, but the compiler cannot know
}

}  // namespace

cudaError_t LaunchReadPeak(const StreamPeak& work, int num_blocks,
                           cudaStream_t stream) {
  return cuda::LaunchKernel(&ReadKernel, static_cast<unsigned>(num_blocks),
                            kThreads, stream, work, num_blocks);
}

cudaError_t LaunchMixPeak(const StreamPeak& work, int num_blocks,
                          cudaStream_t stream) {
  return cuda::LaunchKernel(
      work.element_bytes == 4 ? &MixKernel<2> : &MixKernel<1>,
      static_cast<unsigned>(num_blocks), kThreads, stream, work, num_blocks);
}

cudaError_t LaunchFp64Peak(bool tall, int num_blocks, int num_rounds,
                           double* sink, cudaStream_t stream) {
  return cuda::LaunchKernel(tall ? &Fp64Kernel<true> : &Fp64Kernel<false>,
                            static_cast<unsigned>(num_blocks), kFp64Threads,
                            stream, num_rounds, sink);
}

}  // namespace agg
