// How one shard lays its slices out in memory, and where the waves of a
// pipelined round lie there. Gradient rows, parameters, optimizer state and
// snapshots have the same layout, so that one range means the same elements in
// all of them.
#ifndef AGG_SERVER_INGEST_SHARD_LAYOUT_H_
#define AGG_SERVER_INGEST_SHARD_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"

namespace agg {

// Immutable after MakeShardLayout.
struct ShardLayout {
  Manifest manifest;
  ShardPlan plan;
  int32_t ordinal = 0;
  // This shard's slices (indices into plan.slices, ascending) and where each
  // lies; local_slice[i] is the position of plan.slices[i] here, or -1.
  std::vector<int32_t> slices;
  std::vector<ElementRange> ranges;
  std::vector<int32_t> local_slice;
  int64_t num_elements = 0;    // padded to the alignment per slice
  int64_t num_parameters = 0;  // the same without padding
};

// The layout of shard `ordinal` in a job whose rows have `push_dtype`: slices
// begin at multiples of its LayoutAlignment. Errors are those of MakeShardPlan.
// REQUIRES: 0 <= ordinal < num_shards.
absl::StatusOr<ShardLayout> MakeShardLayout(const Manifest& manifest,
                                            int num_shards, int32_t ordinal,
                                            DType push_dtype = DType::kF32);

// Where a wave of a pipelined round lies among a shard's slices (P43):
// positions [begin, end) of the layout; none if the shard has no slice of the
// wave.
struct WaveSlices {
  size_t begin = 0;
  size_t end = 0;
};

// Returns the slices of each wave of the job's manifest (proto/wave_plan.h), in
// their order; each wave begins where the one before ends.
std::vector<WaveSlices> WaveSlicesOf(const ShardLayout& layout);

}  // namespace agg

#endif  // AGG_SERVER_INGEST_SHARD_LAYOUT_H_
