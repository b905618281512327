// Runs a program on the host, block after block, and checks all that a device
// takes without a word (shared_memory.h and global_memory.h say what).
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_INTERPRETER_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_INTERPRETER_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

struct Launch {
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  absl::Span<const char> parameters;
  // Who runs when. 0: warps in turns, lanes together while they agree, copies
  // read their source at once. Others: blocks, warps and lanes in a random
  // order, lanes apart from each other, and, if odd, copies that read their
  // source when they are waited for. Results must not depend on it.
  uint32_t seed = 0;
};

// ABORTED, with the kernel, the instruction, its line and the thread, for
// anything that is undefined on a device: an undefined register, memory that
// may not be touched, a race, threads that wait for each other for ever. The
// launch ends there.
absl::Status Run(const Program& program, const Launch& launch,
                 GlobalMemory* memory);

// What all launches have run so far: instructions, once for each lane.
int64_t NumInstructions();

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_INTERPRETER_H_
