// What a step means for each slice: where in its lists of numbers a shard finds
// what it needs, and what the tensor's group adds.
#ifndef AGG_SERVER_SHARD_STEP_LAYOUT_H_
#define AGG_SERVER_SHARD_STEP_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "proto/shard_plan.h"
#include "server/ingest/shard_layout.h"
#include "server/round/phase.h"
#include "server/round/shard_options.h"

namespace agg {

// Returns, by tensor of the manifest, its position in step.tensors, hence that
// of its segment (if per_tensor) and trust ratio; -1 if the step does not name
// it. INVALID_ARGUMENT if the lists do not fit the rows, or if a tensor is
// missing that the shard has slices of, unless the step is partial.
absl::StatusOr<std::vector<int32_t>> PlacesIn(const StepPlan& step,
                                              const ShardLayout& layout,
                                              size_t num_rows);

// Returns, by tensor of the manifest, what its group says. INVALID_ARGUMENT for
// a tensor of an unknown group.
absl::StatusOr<std::vector<GroupOptions>> GroupsOf(const ShardOptions& options,
                                                   const Manifest& manifest);

// Positions in the layout of the slices that the step is about, ascending: all
// of them unless it is partial.
std::vector<int32_t> StepSlices(const StepPlan& step,
                                const ShardLayout& layout);

// What the step means for each of StepSlices. `coefficients`: of the
// num_kept rows that are in the sum, for each segment; must outlive the result.
// `num_rows`: of the round; 0 with no coefficients for a step that needs none.
absl::StatusOr<std::vector<UpdateRange>> StepRanges(
    const StepPlan& step, const ShardLayout& layout,
    const std::vector<GroupOptions>& group_of_tensor, size_t num_rows,
    size_t num_kept, absl::Span<const double> coefficients);

// The step without what is about rows: for Backend::Step.
StepPlan WithoutRows(const StepPlan& step);

// Makes an optimizer's state arrays what they are before its first step; null:
// there is no such array. Takes memory for one array meanwhile.
// RESOURCE_EXHAUSTED: there is none; else the backend's errors.
absl::Status RenewState(const OptimizerOptions& optimizer, Backend* backend,
                        Buffer* state0, Buffer* state1);

// Positions of the rows that are in the sum. An excluded row holds a value that
// is not finite: it must not be multiplied, not even by zero.
std::vector<size_t> KeptRows(const StepPlan& step,
                             const std::vector<RoundRow>& rows);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_STEP_LAYOUT_H_
