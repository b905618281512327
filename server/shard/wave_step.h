// What the step of one wave means (P43): which rows each of its tensors has.
#ifndef AGG_SERVER_SHARD_WAVE_STEP_H_
#define AGG_SERVER_SHARD_WAVE_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/round/phase.h"

namespace agg {

struct SplitStep {
  // Steps of some tensors each, all of which have the same rows: the others
  // are excluded. Together with `unchanged` all tensors of the wave, once.
  std::vector<StepPlan> steps;
  std::vector<int32_t> unchanged;  // ascending; tensors without a row
};

// A coefficient that is not a number leaves its row out of that tensor.
// INVALID_ARGUMENT if the lists do not fit `rows`, tensors do not ascend, or
// the step is not per tensor.
absl::StatusOr<SplitStep> SplitByRows(const StepPlan& step,
                                      const std::vector<RoundRow>& rows);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_WAVE_STEP_H_
