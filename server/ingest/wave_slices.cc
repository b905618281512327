// Slices are numbered in the order of the manifest, and so are waves.
#include "server/ingest/wave_slices.h"

#include "proto/wave_plan.h"

namespace agg {

std::vector<WaveSlices> WaveSlicesOf(const ShardLayout& layout) {
  std::vector<WaveSlices> result;
  size_t position = 0;
  for (const Wave& wave : MakeWaves(layout.manifest)) {
    WaveSlices slices{position, position};
    while (slices.end < layout.slices.size() &&
           layout.plan.slices[layout.slices[slices.end]].tensor < wave.end) {
      ++slices.end;
    }
    position = slices.end;
    result.push_back(slices);
  }
  return result;
}

}  // namespace agg
