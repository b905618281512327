// Fills device memory with numbers that take the units their full time.
#ifndef AGG_TESTS_BENCH_DEVICE_FILL_H_
#define AGG_TESTS_BENCH_DEVICE_FILL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_memory.h"

namespace agg {

// Random mantissas and signs, exponents around 1; never zeros, which some units
// compute faster. 4 MiB of each dtype are made on the host, once, and kept on
// the device: what is filled has these again and again, from an element on that
// `seed` says, so that the rows of a Gram differ. The same for the same seeds.
// Ends the process with a message if a call fails. Thread-compatible.
class DeviceFill {
 public:
  // REQUIRES: `stream` outlives it.
  explicit DeviceFill(cudaStream_t stream) : stream_(stream) {}

  // Waits until it is done. REQUIRES: 16-bit or 32-bit floats, num_bytes even;
  // `device` is aligned to 4 bytes.
  void Fill(char* device, int64_t num_bytes, DType dtype, uint32_t seed);

 private:
  const char* BlockOf(DType dtype);

  const cudaStream_t stream_;
  std::map<DType, cuda::DeviceMemory> blocks_;
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_DEVICE_FILL_H_
