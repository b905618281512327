// The unit of work of every CUDA kernel here: a piece of one element range.
#ifndef AGG_KERNELS_CUDA_CHUNK_H_
#define AGG_KERNELS_CUDA_CHUNK_H_

#include <stdint.h>

#include "kernels/narrow_float.h"

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

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CHUNK_H_
