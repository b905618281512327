// Turns an entry as it is written into one that runs.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_DECODER_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_DECODER_H_

#include "absl/status/statusor.h"
#include "tests/kernels/cuda/ptx/module.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

// Keeps pointers to the names of `entry`, which has to outlive the program.
// UNIMPLEMENTED, with the line and the opcode, for an instruction that the
// table does not have or the target has not; INVALID_ARGUMENT for names that
// are not declared.
absl::StatusOr<Program> Decode(const Module& module, const Entry& entry);

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_DECODER_H_
