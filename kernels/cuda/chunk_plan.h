// Cuts element ranges into chunks, and chunks into waves that fit the scratch
// memory. Pure.
#ifndef AGG_KERNELS_CUDA_CHUNK_PLAN_H_
#define AGG_KERNELS_CUDA_CHUNK_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/kernel_args.h"

namespace agg::cuda {

// What is launched at once.
struct Wave {
  std::vector<Slot> slots;
  std::vector<int64_t> slot_ranges;  // of each, its range in the request
  int64_t num_chunks = 0;            // of all
};

// Ranges in their order; an empty range is in no wave. A range that does not
// fit into what is left of a wave starts a new one; only one of more than
// `max_chunks` chunks is cut, at multiples of that from its own begin. So a
// range's pieces, and with them the order of a sum over its elements, depend on
// the range and `max_chunks`, never on the other ranges or the device.
// REQUIRES: max_chunks >= 1, max_slots >= 1; no slot gets 2^31 elements or
// more.
std::vector<Wave> PlanWaves(absl::Span<const ElementRange> ranges,
                            int64_t max_chunks, int64_t max_slots);

// The wave's chunks, as ChunkOfSlots numbers them.
std::vector<Chunk> ChunksOf(const Wave& wave);

// Pieces of a layout that are copied at once.
struct Span {
  int64_t begin = 0;
  int64_t num_elements = 0;
};

// The slots joined where only the padding between two slices (less
// than kLayoutAlignment elements, which belong to no range) lies between them.
std::vector<Span> CoveredSpans(const Wave& wave);
// Those of all waves, one after the other.
std::vector<Span> CoveredSpans(const std::vector<Wave>& waves);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CHUNK_PLAN_H_
