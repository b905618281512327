// A kernel of a few lines of PTX, for tests of the interpreter itself.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_SMALL_KERNEL_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_SMALL_KERNEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tests/kernels/cuda/ptx/global_memory.h"

namespace agg::ptx {

struct SmallKernel {
  // Before it runs: %tid is %tid.x, %at the address of the thread's word of
  // `memory`, 512 bytes of shared memory (behind them are 64 of `other`), %in
  // the first argument, and %out the second one plus 8 for each thread. It may
  // use %p0 .. %p7, %rs0 .., %r0 .., %rd0 .., %f0 .. and %fd0 .. up to 31.
  std::string body;
  unsigned num_threads = 32;
  unsigned num_blocks = 1;
  int target = 90;
  uint32_t seed = 0;
};

// Parses, decodes and runs it.
absl::Status RunSmall(const SmallKernel& kernel, const void* in, void* out,
                      GlobalMemory* memory);

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_SMALL_KERNEL_H_
