// The PTX that nvcc has made of kernels/cuda, by card and kernel.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_KERNEL_MODULES_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_KERNEL_MODULES_H_

#include <string>

#include "absl/status/statusor.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

// A kernel's name with zeros for what nvcc makes of the source's place and
// flags to tell anonymous namespaces apart: objects and PTX that a cache holds
// may come from different places.
std::string WithoutHashes(std::string name);

// By its name without hashes. Kept for ever. Reads the files that AGG_PTX in
// the environment names, with spaces between them, when first called.
// NOT_FOUND: none of the target's has the kernel; or what parsing and decoding
// return. Thread-safe.
absl::StatusOr<const Program*> FindKernel(int target, const std::string& name);

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_KERNEL_MODULES_H_
