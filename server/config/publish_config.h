// How a round closes and is published: whether the job is pipelined (P43), and
// whether it may be.
#ifndef AGG_SERVER_CONFIG_PUBLISH_CONFIG_H_
#define AGG_SERVER_CONFIG_PUBLISH_CONFIG_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/optimizer_step.h"
#include "proto/config.pb.h"
#include "server/combine/options.h"

namespace agg {

// How many rows close a round, and of which version: INVALID_ARGUMENT with a
// line for each bad field. REQUIRES: a config that WithDefaults has completed.
absl::Status CheckCloseRule(const v1::JobConfig& config);

// INVALID_ARGUMENT with a line for `publish` if it is no known name, or for
// each field that a pipelined job has to have otherwise.
// REQUIRES: a config that WithDefaults has completed, and what was made of it.
absl::StatusOr<bool> MakePipelined(const v1::JobConfig& config,
                                   const CombineOptions& combine,
                                   const OptimizerOptions& optimizer);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_PUBLISH_CONFIG_H_
