#include "kernels/cuda/device_ops.cuh"
#include "tests/bench/fp64_peak.h"

namespace agg {
namespace {

constexpr int kThreads = 128;
constexpr int kProducts = 16;  // as many accumulators as the Gram kernel's

// kTall: 16 rows per product, two accumulators.
template <bool kTall>
__global__ void __launch_bounds__(kThreads)
    PeakKernel(int num_rounds, double* sink) {
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

cudaError_t LaunchFp64Peak(bool tall, int num_blocks, int num_rounds,
                           double* sink, cudaStream_t stream) {
  return cuda::LaunchKernel(tall ? &PeakKernel<true> : &PeakKernel<false>,
                            static_cast<unsigned>(num_blocks), kThreads, stream,
                            num_rounds, sink);
}

}  // namespace agg
