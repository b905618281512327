// What a kernel takes of a multiprocessor, as the driver has it.
#ifndef AGG_KERNELS_CUDA_KERNEL_USE_H_
#define AGG_KERNELS_CUDA_KERNEL_USE_H_

namespace agg::cuda {

struct KernelUse {
  int threads = 0;        // of a block
  int registers = 0;      // of a thread
  int shared_bytes = 0;   // of a block
  int blocks_per_sm = 0;  // that run at a time, as the driver says
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_KERNEL_USE_H_
