// Where in a step's lists of numbers a shard finds what it needs.
#ifndef AGG_SERVER_SHARD_STEP_LAYOUT_H_
#define AGG_SERVER_SHARD_STEP_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/ingest/shard_layout.h"
#include "server/round/phase.h"

namespace agg {

// By tensor of the manifest: its position in step.tensors, hence that of its
// segment (if per_tensor) and trust ratio; -1 if the step does not name it.
// INVALID_ARGUMENT if the lists do not fit the rows, or if a tensor is missing
// that the shard has slices of.
absl::StatusOr<std::vector<int32_t>> PlacesIn(const StepPlan& step,
                                              const ShardLayout& layout,
                                              size_t num_rows);

// Positions of the rows that are in the sum. An excluded row holds a value that
// is not finite: it must not be multiplied, not even by zero.
std::vector<size_t> KeptRows(const StepPlan& step,
                             const std::vector<RoundRow>& rows);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_STEP_LAYOUT_H_
