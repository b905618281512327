// Makes CombineOptions of the configuration's `combination`, `shadow_rules`,
// `outliers`, `step_scale` and `learning_rate`. Apart from options.h, since
// these fields alone are about combining.
#ifndef AGG_SERVER_CONFIG_COMBINE_CONFIG_H_
#define AGG_SERVER_CONFIG_COMBINE_CONFIG_H_

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/combine/options.h"

namespace agg {

// INVALID_ARGUMENT with a line for each bad field: "field is value; allowed:
// ...". A field that the chosen rule or schedule does not use must not be set.
// REQUIRES: a config that WithDefaults has completed.
absl::StatusOr<CombineOptions> MakeCombineOptions(const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_COMBINE_CONFIG_H_
