// Slices follow each other in the plan's order, each begun at a multiple of
// the alignment that SIMD loads and DMA copies want, and the scales of int8.
#include "server/ingest/shard_layout.h"

#include <utility>

#include "kernels/row_format.h"
#include "proto/wave_plan.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

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

absl::StatusOr<ShardLayout> MakeShardLayout(const Manifest& manifest,
                                            int num_shards, int32_t ordinal,
                                            DType push_dtype) {
  AGG_DCHECK(ordinal >= 0 && ordinal < num_shards);
  AGG_ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(manifest, num_shards));
  const int64_t alignment = LayoutAlignment(push_dtype);
  ShardLayout layout;
  layout.manifest = manifest;
  layout.plan = std::move(plan);
  layout.ordinal = ordinal;
  layout.slices = layout.plan.slices_of_shard[ordinal];
  layout.local_slice.assign(layout.plan.slices.size(), -1);
  for (int32_t index : layout.slices) {
    layout.local_slice[index] = static_cast<int32_t>(layout.ranges.size());
    const int64_t num_elements = layout.plan.slices[index].num_elements;
    layout.ranges.push_back({layout.num_elements, num_elements});
    layout.num_parameters += num_elements;
    layout.num_elements +=
        (num_elements + alignment - 1) / alignment * alignment;
  }
  return layout;
}

}  // namespace agg
