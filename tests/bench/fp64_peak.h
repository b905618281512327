// What a device's fp64 tensor cores do with operands in registers: the
// yardstick of cuda_kernels.
#ifndef AGG_TESTS_BENCH_FP64_PEAK_H_
#define AGG_TESTS_BENCH_FP64_PEAK_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace agg {

// `num_blocks` blocks of 128 threads, each warp `num_rounds` times 16
// independent 8x8x4 products, 512 operations each; `tall`: two of them at a
// time as one 16x8x4 product, where the device has that (sm_90). `sink`: one
// double.
cudaError_t LaunchFp64Peak(bool tall, int num_blocks, int num_rounds,
                           double* sink, cudaStream_t stream);

inline double Fp64PeakOperations(int num_blocks, int num_rounds) {
  return 4.0 * num_blocks * num_rounds * 16 * 512;
}

}  // namespace agg

#endif  // AGG_TESTS_BENCH_FP64_PEAK_H_
