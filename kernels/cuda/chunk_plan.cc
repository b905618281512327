#include "kernels/cuda/chunk_plan.h"

#include <algorithm>

namespace agg::cuda {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<Wave> PlanWaves(absl::Span<const ElementRange> ranges,
                            int64_t max_chunks, int64_t max_slots) {
  std::vector<Wave> waves;
  const auto is_full = [&](const Wave& wave) {
    return static_cast<int64_t>(wave.chunks.size()) >= max_chunks;
  };
  for (size_t r = 0; r < ranges.size(); ++r) {
    const ElementRange& range = ranges[r];
    bool has_slot = false;
    for (int64_t done = 0; done < range.num_elements; done += kChunkElements) {
      if (waves.empty() || is_full(waves.back()) ||
          (!has_slot && static_cast<int64_t>(waves.back().slot_ranges.size()) >=
                            max_slots)) {
        waves.emplace_back();
        has_slot = false;
      }
      Wave& wave = waves.back();
      if (!has_slot) {
        wave.slot_ranges.push_back(static_cast<int64_t>(r));
        wave.slot_begins.push_back(static_cast<int32_t>(wave.chunks.size()));
        has_slot = true;
      }
      Chunk chunk;
      chunk.begin = range.begin + done;
      chunk.num_elements = static_cast<int32_t>(
          std::min(kChunkElements, range.num_elements - done));
      chunk.slot = static_cast<int32_t>(wave.slot_ranges.size()) - 1;
      wave.chunks.push_back(chunk);
    }
  }
  for (Wave& wave : waves) {
    wave.slot_begins.push_back(static_cast<int32_t>(wave.chunks.size()));
  }
  return waves;
}

std::vector<Span> CoveredSpans(const Wave& wave) {
  std::vector<Span> spans;
  for (const Chunk& chunk : wave.chunks) {
    if (!spans.empty()) {
      Span& last = spans.back();
      const int64_t end = last.begin + last.num_elements;
      if (chunk.begin >= end && chunk.begin == RoundUp(end, kLayoutAlignment)) {
        last.num_elements = chunk.begin + chunk.num_elements - last.begin;
        continue;
      }
    }
    spans.push_back({chunk.begin, chunk.num_elements});
  }
  return spans;
}

}  // namespace agg::cuda
