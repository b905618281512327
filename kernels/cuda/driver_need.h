// Which driver the CUDA runtime in this binary needs. Pure.
#ifndef AGG_KERNELS_CUDA_DRIVER_NEED_H_
#define AGG_KERNELS_CUDA_DRIVER_NEED_H_

#include <string>

namespace agg::cuda {

// "this binary has CUDA 13.0, which needs a driver of release 580 or newer; the
// driver here is for CUDA 12.4": for people whose device cannot be used. Both
// versions as cudaRuntimeGetVersion and cudaDriverGetVersion give them, 1000
// times the major one plus 10 times the minor one; `driver` is 0 where there is
// none. The releases are those of NVIDIA's "CUDA Compatibility", table
// "Minimum required driver version for minor version compatibility".
std::string DriverNeed(int runtime, int driver);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_DRIVER_NEED_H_
