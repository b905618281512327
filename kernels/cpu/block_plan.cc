// Small ranges share a unit: a thread is woken for a block's worth of
// elements, not for a bias of ten.
#include "kernels/cpu/block_plan.h"

#include <algorithm>

namespace agg {

BlockPlan PlanBlocks(absl::Span<const ElementRange> ranges) {
  BlockPlan plan;
  plan.unit_begins.push_back(0);
  int64_t unit_elements = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const ElementRange& range = ranges[r];
    for (int64_t done = 0; done < range.num_elements; done += kBlockElements) {
      Block block;
      block.range_index = static_cast<int64_t>(r);
      block.begin = range.begin + done;
      block.num_elements = std::min(kBlockElements, range.num_elements - done);
      plan.blocks.push_back(block);
      plan.num_elements += block.num_elements;
      unit_elements += block.num_elements;
      if (unit_elements >= kBlockElements) {
        plan.unit_begins.push_back(static_cast<int64_t>(plan.blocks.size()));
        unit_elements = 0;
      }
    }
  }
  if (unit_elements > 0) {
    plan.unit_begins.push_back(static_cast<int64_t>(plan.blocks.size()));
  }
  return plan;
}

}  // namespace agg
