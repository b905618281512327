// The Gram matrix of up to 8 rows, with fused multiply-adds.
//
//   kernel          called by          a block of 128 threads does
//   FewRowsKernel   LaunchGramFewRows  one chunk
//
// So few rows do not fill a tensor core's tile, and need not: a lane that has
// 16 bytes of every row keeps all pairs' sums in registers. Lanes are added as
// a tree, warps in order; the same for every pair, so that equal rows have
// equal entries.
#include <cassert>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/row_ring.cuh"

namespace agg::cuda {
namespace {

constexpr int kThreads = kGramWarps * kWarpLanes;

// ----------------------------------------------------------------------------
// Device functions

template <int kRows>
constexpr int kPairsOf = kRows*(kRows + 1) / 2;

// What a warp has in shared memory: its ring, then its sums.
template <int kRows>
union WarpMemory {
  RingSlots<kRows> ring;
  double sums[kPairsOf<kRows>];
};

// Adds the products of the elements of all rows' loads.
template <class Element, int kRows>
__device__ __forceinline__ void AddProducts(const Packed (&rows)[kRows],
                                            double (&sums)[kPairsOf<kRows>]) {
#pragma unroll
  for (int e = 0; e < Element::kPerLoad; ++e) {
    double x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = Element::ToFloat(rows[r], e);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = i; j < kRows; ++j) {
        double& sum = sums[PackedPair(i, j, kRows)];
        sum = fma(x[i], x[j], sum);
      }
    }
  }
}

// Leaves the sums of a warp's lanes in shared memory, where its ring was.
template <int kPairs>
__device__ __forceinline__ void StoreSums(double (&sums)[kPairs], int lane,
                                          double (&shared)[kPairs]) {
  JoinWarp();  // all lanes have read the ring
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
    for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
      sums[pair] += OfLaneBelow(sums[pair], offset);
    }
    if (lane == 0) shared[pair] = sums[pair];
  }
}

// ----------------------------------------------------------------------------
// Kernel

// Block (chunk).
template <class Element, int kRows>
__global__ void __launch_bounds__(kThreads)
    FewRowsKernel(const GramLaunch __grid_constant__ p) {
  constexpr int kPairs = kPairsOf<kRows>;
  auto& shared = BlockShared<WarpMemory<kRows>[kGramWarps]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const int num_bytes = BytesOf<Element>(chunk.num_elements);
  const void* const* const all_rows = ArrayOf(p.args, p.rows);
  const char* rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] =
        static_cast<const char*>(all_rows[r]) + BytesOf<Element>(chunk.begin);
  }
  RowRing<kRows, kWarpLanes> ring(rows, num_bytes, warp, lane,
                                  &shared[warp].ring);

  double sums[kPairs] = {};
  Packed loads[kRows];
  while (ring.Next(loads)) AddProducts<Element>(loads, sums);
  // The other warps of a tiny chunk have had no step.
  const int num_warps =
      min(static_cast<int>(CeilDivide(num_bytes, StepBytes(kWarpLanes))),
          kGramWarps);
  if (warp < num_warps) StoreSums(sums, lane, shared[warp].sums);
  __syncthreads();
  const int pair = static_cast<int>(threadIdx.x);
  if (pair >= kPairs) return;
  double sum = 0.0;
  for (int w = 0; w < num_warps; ++w) sum += shared[w].sums[pair];
  p.partial[static_cast<int64_t>(blockIdx.x) * kPairs + pair] = sum;
}

// ----------------------------------------------------------------------------
// Launcher

template <class Element>
auto KernelOf(int num_rows) {
  switch (num_rows) {
    case 1:
      return &FewRowsKernel<Element, 1>;
    case 2:
      return &FewRowsKernel<Element, 2>;
    case 3:
      return &FewRowsKernel<Element, 3>;
    case 4:
      return &FewRowsKernel<Element, 4>;
    case 5:
      return &FewRowsKernel<Element, 5>;
    case 6:
      return &FewRowsKernel<Element, 6>;
    case 7:
      return &FewRowsKernel<Element, 7>;
    default:
      return &FewRowsKernel<Element, 8>;
  }
}

}  // namespace

cudaError_t LaunchGramFewRows(const GramLaunch& launch, cudaStream_t stream) {
  assert(launch.num_rows <= kFewRows);
  if (launch.num_chunks == 0) return cudaSuccess;
  return WithElement(launch.dtype, [&](auto element) {
    return LaunchKernel(KernelOf<decltype(element)>(launch.num_rows),
                        static_cast<unsigned>(launch.num_chunks), kThreads,
                        stream, launch);
  });
}

cudaError_t LoadGramFewRows() {
  return WithEachElement([](auto element) {
    cudaError_t error = cudaSuccess;
    for (int rows = 1; rows <= kFewRows && error == cudaSuccess; ++rows) {
      error = LoadRingKernel(KernelOf<decltype(element)>(rows));
    }
    return error;
  });
}

cudaError_t FindFewRowsUse(int num_rows, int dtype, KernelUse* use) {
  return WithElement(dtype, [&](auto element) {
    return FindUse(KernelOf<decltype(element)>(num_rows), kThreads, use);
  });
}

}  // namespace agg::cuda
