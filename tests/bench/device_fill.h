// Fills device memory with numbers that take the units their full time.
#ifndef AGG_TESTS_BENCH_DEVICE_FILL_H_
#define AGG_TESTS_BENCH_DEVICE_FILL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/backend.h"

namespace agg {

// Random mantissas and signs, exponents around 1; never zeros, which some units
// compute faster. The same 4 MiB again and again, by `seed`. Waits until it is
// done. Ends the process with a message if a call fails. REQUIRES: 16-bit or
// 32-bit floats, num_bytes even.
void FillRandom(char* device, int64_t num_bytes, DType dtype, uint32_t seed,
                cudaStream_t stream);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_DEVICE_FILL_H_
