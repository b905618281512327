// Where the waves of a pipelined round lie among a shard's slices (P43).
#ifndef AGG_SERVER_INGEST_WAVE_SLICES_H_
#define AGG_SERVER_INGEST_WAVE_SLICES_H_

#include <cstddef>
#include <vector>

#include "server/ingest/shard_layout.h"

namespace agg {

// Positions [begin, end) of the layout; none if the shard has no slice of the
// wave.
struct WaveSlices {
  size_t begin = 0;
  size_t end = 0;
};

// Returns the slices of each wave of the job's manifest (proto/wave_plan.h), in
// their order; each wave begins where the one before ends.
std::vector<WaveSlices> WaveSlicesOf(const ShardLayout& layout);

}  // namespace agg

#endif  // AGG_SERVER_INGEST_WAVE_SLICES_H_
