// `optimizer` and `groups` of the configuration as plain options.
#ifndef AGG_SERVER_CONFIG_OPTIMIZER_CONFIG_H_
#define AGG_SERVER_CONFIG_OPTIMIZER_CONFIG_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/optimizer_step.h"
#include "proto/config.pb.h"
#include "server/round/shard_options.h"

namespace agg {

// Fills in the defaults of the fields that the optimizer's kind uses.
void CompleteOptimizer(v1::OptimizerConfig* config);
// Fills in the defaults of a group.
void CompleteGroup(v1::GroupConfig* group);

// INVALID_ARGUMENT with a line for each bad field: "field is value; allowed:
// ...". A field that the kind does not use must not be set.
// REQUIRES: CompleteOptimizer was called.
absl::StatusOr<OptimizerOptions> MakeOptimizerOptions(
    const v1::OptimizerConfig& config);

// Makes the options of the groups, with errors as MakeOptimizerOptions has
// them. Names must be unique and not empty.
absl::StatusOr<std::vector<GroupOptions>> MakeGroupOptions(
    const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_OPTIMIZER_CONFIG_H_
