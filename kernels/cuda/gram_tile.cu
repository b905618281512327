// The two ends of the cuBLAS Gram.
//
//   kernel         called by      threads               result is in
//   ConvertKernel  LaunchConvert  1 per element of row  the tile of doubles
//   GatherKernel   LaunchGather   1 per matrix entry    the packed sums
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"

namespace agg::cuda {
namespace {

constexpr int kThreads = 256;

// ----------------------------------------------------------------------------
// Kernels (their device functions are in load_elements.cuh)

// One thread per element; block row y per row. 16-byte loads would not help:
// the doubles written are twice the bytes.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    ConvertKernel(const ConvertLaunch __grid_constant__ p) {
  using Storage = typename Element::Storage;
  const int k =
      static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (k >= p.num_filled) return;
  const int row = static_cast<int>(blockIdx.y);
  double value = 0.0;
  if (k < p.num_elements) {
    value = Element::FromStorage(
        static_cast<const Storage*>(ArrayOf(p.args, p.rows)[row])[p.begin + k]);
  }
  p.tile[row * p.row_stride + k] = value;
}

// One thread per entry of the matrix; those below the diagonal have no work.
__global__ void __launch_bounds__(kThreads) GatherKernel(GatherLaunch p) {
  const int64_t entry =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t num_entries = static_cast<int64_t>(p.num_rows) * p.num_rows;
  if (entry >= num_entries) return;
  const int64_t j = entry / p.num_rows;
  const int64_t i = entry % p.num_rows;
  if (i > j) return;
  double* const to = p.sums + PackedPair(i, j, p.num_rows);
  double sum = *to;
  for (int batch = 0; batch < p.num_batches; ++batch) {
    sum += p.matrices[batch * num_entries + entry];
  }
  *to = sum;
}

// ----------------------------------------------------------------------------
// Launchers

unsigned BlocksFor(int64_t num_threads) {
  return static_cast<unsigned>(CeilDivide(num_threads, kThreads));
}

}  // namespace

cudaError_t LaunchConvert(const ConvertLaunch& launch, cudaStream_t stream) {
  const dim3 grid(BlocksFor(launch.num_filled),
                  static_cast<unsigned>(launch.num_rows));
  return WithElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&ConvertKernel<decltype(element)>, grid, kThreads,
                        stream, launch);
  });
}

cudaError_t LaunchGather(const GatherLaunch& launch, cudaStream_t stream) {
  const int64_t num_entries =
      static_cast<int64_t>(launch.num_rows) * launch.num_rows;
  return LaunchKernel(&GatherKernel, BlocksFor(num_entries), kThreads, stream,
                      launch);
}

cudaError_t LoadTiles() {
  const cudaError_t error = WithEachElement([](auto element) {
    return LoadKernel(&ConvertKernel<decltype(element)>);
  });
  return error == cudaSuccess ? LoadKernel(&GatherKernel) : error;
}

}  // namespace agg::cuda
