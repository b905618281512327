// The yardsticks of cuda_kernels: how fast kernels that do next to nothing else
// read device memory, and read and write it, for kernels that move the same
// bytes; and what the fp64 tensor cores do with operands in registers.
#ifndef AGG_TESTS_BENCH_DEVICE_PEAKS_H_
#define AGG_TESTS_BENCH_DEVICE_PEAKS_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace agg {

// All pointers are to device memory, aligned to 16 bytes.
struct StreamPeak {
  const void* const* rows = nullptr;  // num_rows addresses
  int num_rows = 0;
  int element_bytes = 0;  // of a row: 2 or 4
  int64_t num_elements = 0;
  float* arrays[3] = {};  // of LaunchMixPeak; a bit of them may change
  int num_arrays = 0;
  unsigned* sink = nullptr;  // of LaunchReadPeak: one of them
};

// Blocks of 256 threads per multiprocessor that are always enough.
inline constexpr int kStreamPeakBlocks = 8;

// Adds up all rows, one behind the other, 16 bytes per load and four loads per
// thread under way. What is left of a row behind its last 16 bytes is not read.
cudaError_t LaunchReadPeak(const StreamPeak& work, int num_blocks,
                           cudaStream_t stream);

// Moves bytes as Update does: the same elements of all rows and arrays at a
// time, all of them read, the arrays written. What is left behind the last 2 Ki
// elements is not.
cudaError_t LaunchMixPeak(const StreamPeak& work, int num_blocks,
                          cudaStream_t stream);

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

#endif  // AGG_TESTS_BENCH_DEVICE_PEAKS_H_
