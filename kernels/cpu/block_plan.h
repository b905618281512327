// Cuts element ranges into blocks, and blocks into units for threads. Pure.
#ifndef AGG_KERNELS_CPU_BLOCK_PLAN_H_
#define AGG_KERNELS_CPU_BLOCK_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace agg {

// Elements of a block. Part of the numerics contract: sums are formed within
// blocks, then over a range's blocks in order. Large enough that 8 lanes and
// their reduction tree cost nothing, small enough that the 16 blocks of a
// slice keep many threads busy.
inline constexpr int64_t kBlockElements = int64_t{64} << 10;

// At most kBlockElements elements of one range.
struct Block {
  int64_t range_index = 0;
  int64_t begin = 0;  // in the layout
  int64_t num_elements = 0;
};

struct BlockPlan {
  // Blocks in the ranges' order; an empty range has no block.
  std::vector<Block> blocks;
  // Unit u is blocks [unit_begins[u], unit_begins[u + 1]). Small blocks share
  // a unit, so that many tiny slices do not each cost a handover.
  std::vector<int64_t> unit_begins;
  int64_t num_elements = 0;

  int64_t num_units() const {
    return static_cast<int64_t>(unit_begins.size()) - 1;
  }
};

BlockPlan PlanBlocks(absl::Span<const ElementRange> ranges);

}  // namespace agg

#endif  // AGG_KERNELS_CPU_BLOCK_PLAN_H_
