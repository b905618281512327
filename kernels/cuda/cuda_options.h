// What can be chosen about the CUDA backend.
#ifndef AGG_KERNELS_CUDA_CUDA_OPTIONS_H_
#define AGG_KERNELS_CUDA_CUDA_OPTIONS_H_

#include <string>

#include "kernels/backend_maker.h"

namespace agg {

struct CudaOptions {
  int device = 0;  // of the visible ones
  GramArithmetic gram = GramArithmetic::kByDevice;
  // Multiply more than 32 rows with cuBLAS if there is one (kDouble).
  bool use_cublas = true;
  // The library's file; empty looks for it (cublas_library.h).
  std::string cublas_path;
};

}  // namespace agg

#endif  // AGG_KERNELS_CUDA_CUDA_OPTIONS_H_
