// The device that the CUDA jobs (cuda_jobs.cc) run on: the program is linked
// with either emulated_cuda_device or real_cuda_device.
#ifndef AGG_TESTS_E2E_CUDA_DEVICE_H_
#define AGG_TESTS_E2E_CUDA_DEVICE_H_

#include <cstdint>
#include <string>

#include "kernels/backend_maker.h"

namespace agg {

struct CudaDevice {
  // Knows "cuda", all on the one device, and "cpu".
  BackendMaker make_backend;
  std::string why_not;  // not empty: there is no device
  // Columns for MixedManifest: as many as the device computes quickly.
  int64_t columns = 0;
};

// Asked once per process.
const CudaDevice& TheCudaDevice();

// Streams of the emulated device do their work at once in odd runs and at the
// last moment in even ones, as timing may differ from run to run on a real one.
void BeginRun(int run);

}  // namespace agg

#endif  // AGG_TESTS_E2E_CUDA_DEVICE_H_
