// In place of NVIDIA's runtime library where kernels are launched: the host
// objects that nvcc has made register their kernels here, and launch them in
// the interpreter. Streams and memory are the emulator's
// (tests/kernels/cuda/emulator/device.h).
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_

#include <cstdint>
#include <set>
#include <string>

namespace agg::ptx {

// --- For tests; a launch takes what is set when it is enqueued ---

// The card: 80 or 90. Default: 90.
void SetTarget(int target);
// As Launch::seed.
void SetSeed(uint32_t seed);
// No kernel may write to these bytes, until ClearReadOnly.
void SetReadOnly(const void* begin, int64_t num_bytes);
void ClearReadOnly();

// Names of all kernels that the objects have registered, and of those that
// have run without a fault on the target.
std::set<std::string> RegisteredKernels();
std::set<std::string> KernelsThatRan(int target);

// A launch that has a fault fails the test that runs.

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_
