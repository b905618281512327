// What a kernel works on, and its arrays of arguments: in its parameters as far
// as they fit, in pinned host memory otherwise. Either way no copy has to bring
// them to the device, which would queue up behind the rows' copies.
#ifndef AGG_KERNELS_CUDA_KERNEL_ARGS_H_
#define AGG_KERNELS_CUDA_KERNEL_ARGS_H_

#include <stdint.h>

#include "kernels/narrow_float.h"

namespace agg::cuda {

// Elements of a chunk. Part of the numerics contract, like the CPU's blocks:
// sums are formed within chunks, then over a range's chunks in order, whatever
// the device is. A multiple of kLayoutAlignment, so that every chunk starts
// where a 16-byte load may.
inline constexpr int64_t kChunkElements = 16384;

// The unit of work of every CUDA kernel here, a piece of one element range: one
// thread block works on one chunk.
struct Chunk {
  int64_t begin = 0;         // in the layout; a multiple of kLayoutAlignment
  int32_t num_elements = 0;  // 1..kChunkElements
  int32_t slot = 0;          // index of its range within the wave
};

// A range of a wave, or a piece of one that is longer than a wave: its chunks
// are one behind the other.
struct Slot {
  int64_t begin = 0;  // in the layout; a multiple of kLayoutAlignment
  int32_t num_elements = 0;
  int32_t first_chunk = 0;  // its index within the wave
};

AGG_HOST_DEVICE int64_t NumChunks(int64_t num_elements) {
  return (num_elements + kChunkElements - 1) / kChunkElements;
}

// Chunk `index` of the wave that has these slots, by bisection.
// REQUIRES: num_slots > 0, 0 <= index < number of the slots' chunks.
AGG_HOST_DEVICE Chunk ChunkOfSlots(const Slot* slots, int32_t num_slots,
                                   int64_t index) {
  int32_t first = 0;
  for (int32_t end = num_slots; end - first > 1;) {
    const int32_t middle = first + (end - first) / 2;
    if (slots[middle].first_chunk <= index) {
      first = middle;
    } else {
      end = middle;
    }
  }
  const Slot slot = slots[first];
  const int64_t done = (index - slot.first_chunk) * kChunkElements;
  const int64_t left = slot.num_elements - done;
  Chunk chunk;
  chunk.begin = slot.begin + done;
  chunk.num_elements =
      static_cast<int32_t>(left < kChunkElements ? left : kChunkElements);
  chunk.slot = first;
  return chunk;
}

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

// What a kernel takes of a multiprocessor, as the driver has it.
struct KernelUse {
  int threads = 0;        // of a block
  int registers = 0;      // of a thread
  int shared_bytes = 0;   // of a block
  int blocks_per_sm = 0;  // that run at a time, as the driver says
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_KERNEL_ARGS_H_
