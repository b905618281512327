// The unit of work of every CUDA kernel here: a piece of one element range.
#ifndef AGG_KERNELS_CUDA_CHUNK_H_
#define AGG_KERNELS_CUDA_CHUNK_H_

#include <stdint.h>

namespace agg::cuda {

// Elements of a chunk. Part of the numerics contract, like the CPU's blocks:
// sums are formed within chunks, then over a range's chunks in order, whatever
// the device is. A multiple of kLayoutAlignment, so that every chunk starts
// where a 16-byte load may.
inline constexpr int64_t kChunkElements = 16384;

// One thread block works on one chunk.
struct Chunk {
  int64_t begin = 0;         // in the layout; a multiple of kLayoutAlignment
  int32_t num_elements = 0;  // 1..kChunkElements
  int32_t slot = 0;          // index of its range within the wave
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CHUNK_H_
