// A wave is what fits the scratch memory in one go. A long range is cut into
// pieces, always at the same elements, so that its bits do not depend on its
// neighbours.
#include "kernels/cuda/chunk_plan.h"

#include <algorithm>
#include <cassert>

namespace agg::cuda {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Adds elements [begin, begin + num_elements) of range `r` as a slot.
void AddSlot(int64_t r, int64_t begin, int64_t num_elements, Wave* wave) {
  wave->slot_ranges.push_back(r);
  wave->slots.push_back({begin, static_cast<int32_t>(num_elements),
                         static_cast<int32_t>(wave->num_chunks)});
  wave->num_chunks += NumChunks(num_elements);
}

}  // namespace

std::vector<Wave> PlanWaves(absl::Span<const ElementRange> ranges,
                            int64_t max_chunks, int64_t max_slots) {
  assert(max_chunks >= 1 && max_slots >= 1);
  std::vector<Wave> waves;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const ElementRange& range = ranges[r];
    const int64_t piece_elements =
        std::min(range.num_elements, max_chunks * kChunkElements);
    for (int64_t done = 0; done < range.num_elements; done += piece_elements) {
      const int64_t num_elements =
          std::min(piece_elements, range.num_elements - done);
      // Even the rest of a range longer than a wave goes whole: where pieces
      // begin and end must not depend on what else the wave holds.
      if (waves.empty() ||
          waves.back().num_chunks + NumChunks(num_elements) > max_chunks ||
          static_cast<int64_t>(waves.back().slot_ranges.size()) >= max_slots) {
        waves.emplace_back();
      }
      AddSlot(static_cast<int64_t>(r), range.begin + done, num_elements,
              &waves.back());
    }
  }
  return waves;
}

std::vector<Chunk> ChunksOf(const Wave& wave) {
  std::vector<Chunk> chunks;
  chunks.reserve(wave.num_chunks);
  for (size_t slot = 0; slot < wave.slots.size(); ++slot) {
    const Slot& from = wave.slots[slot];
    for (int64_t done = 0; done < from.num_elements; done += kChunkElements) {
      Chunk chunk;
      chunk.begin = from.begin + done;
      chunk.num_elements = static_cast<int32_t>(
          std::min(kChunkElements, from.num_elements - done));
      chunk.slot = static_cast<int32_t>(slot);
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

std::vector<Span> CoveredSpans(const Wave& wave) {
  std::vector<Span> spans;
  for (const Slot& slot : wave.slots) {
    if (!spans.empty()) {
      Span& last = spans.back();
      const int64_t end = last.begin + last.num_elements;
      if (slot.begin >= end && slot.begin == RoundUp(end, kLayoutAlignment)) {
        last.num_elements = slot.begin + slot.num_elements - last.begin;
        continue;
      }
    }
    spans.push_back({slot.begin, slot.num_elements});
  }
  return spans;
}

std::vector<Span> CoveredSpans(const std::vector<Wave>& waves) {
  std::vector<Span> all;
  for (const Wave& wave : waves) {
    const std::vector<Span> spans = CoveredSpans(wave);
    all.insert(all.end(), spans.begin(), spans.end());
  }
  return all;
}

}  // namespace agg::cuda
