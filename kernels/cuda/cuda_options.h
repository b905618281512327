// What can be chosen about the CUDA backend.
#ifndef AGG_KERNELS_CUDA_CUDA_OPTIONS_H_
#define AGG_KERNELS_CUDA_CUDA_OPTIONS_H_

#include <cstdint>
#include <string>

#include "kernels/backend_maker.h"
#include "kernels/cuda/cuda_scratch.h"

namespace agg {

struct CudaOptions {
  int device = 0;  // of the visible ones
  GramArithmetic gram = GramArithmetic::kByDevice;
  // Multiply many rows with cuBLAS if there is one (kDouble).
  bool use_cublas = true;
  // More than these are many: 1 to 2895, as a tile has room for.
  int64_t many_rows = cuda::kManyRows;
  // Where the system tells what is near the device.
  std::string sysfs = "/sys";
  // cuBLAS's file; empty looks for it (cublas_library.h).
  std::string cublas_path;
  // Make kRow and kState buffers such that other processes can map their device
  // side, where the driver can do that; the description says if it cannot.
  bool share_device = false;
  // The driver's file for that, as CudaDriver::Load.
  std::string driver_path;
};

}  // namespace agg

#endif  // AGG_KERNELS_CUDA_CUDA_OPTIONS_H_
