// How fast kernels that do next to nothing else read device memory, and read
// and write it: the yardstick of cuda_kernels for its kernels, which move the
// same bytes.
#ifndef AGG_TESTS_BENCH_STREAM_PEAK_H_
#define AGG_TESTS_BENCH_STREAM_PEAK_H_

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

// As Update moves them: the same elements of all rows and arrays at a time, all
// of them read, the arrays written. What is left behind the last 2 Ki elements
// is not.
cudaError_t LaunchMixPeak(const StreamPeak& work, int num_blocks,
                          cudaStream_t stream);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_STREAM_PEAK_H_
