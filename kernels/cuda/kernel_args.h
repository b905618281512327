// A kernel's arrays of arguments: in its parameters as far as they fit, in
// pinned host memory otherwise. Either way no copy has to bring them to the
// device, which would queue up behind the rows' copies.
#ifndef AGG_KERNELS_CUDA_KERNEL_ARGS_H_
#define AGG_KERNELS_CUDA_KERNEL_ARGS_H_

#include <stdint.h>

#include "kernels/cuda/chunk.h"
#include "kernels/narrow_float.h"

namespace agg::cuda {

// What a kernel's parameters may take (CUDA C++ Programming Guide, "Function
// parameters"; more only from CUDA 12.1 and its drivers on), and what arrays
// may take of it.
inline constexpr int kParameterBytes = 4096;
inline constexpr int kInlineBytes = 3712;

// Part of a launch's parameters: the arrays that fit.
struct InlineArgs {
  alignas(16) unsigned char bytes[kInlineBytes] = {};
  int32_t num_bytes = 0;  // in use
};

// Where an array is: at `offset` of the launch's InlineArgs, unless in pinned
// memory.
template <class T>
struct ArgArray {
  const T* pinned = nullptr;
  int32_t offset = 0;
};

// The array's first element. REQUIRES: `args` is the launch's own, and of a
// kernel's parameters it is __grid_constant__.
template <class T>
AGG_HOST_DEVICE const T* ArrayOf(const InlineArgs& args,
                                 const ArgArray<T>& array) {
  return array.pinned != nullptr
             ? array.pinned
             : reinterpret_cast<const T*>(args.bytes + array.offset);
}

// Chunk `index` of a GramLaunch or an UpdateLaunch.
template <class Launch>
AGG_HOST_DEVICE Chunk ChunkAt(const Launch& p, int64_t index) {
  if (p.chunks != nullptr) return p.chunks[index];
  return ChunkOfSlots(ArrayOf(p.args, p.slots), p.num_slots, index);
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_KERNEL_ARGS_H_
