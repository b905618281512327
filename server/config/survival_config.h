// `replication` and `checkpoint` of the configuration: what a job's parts are
// kept safe by.
#ifndef AGG_SERVER_CONFIG_SURVIVAL_CONFIG_H_
#define AGG_SERVER_CONFIG_SURVIVAL_CONFIG_H_

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

// Fills in defaults; those of `checkpoint` only if it has a path, since its
// other fields mean nothing without.
void CompleteSurvival(v1::JobConfig* config);

// Whether each part has a copy at the next shard. INVALID_ARGUMENT: the name is
// unknown, or there is no next shard.
// REQUIRES: CompleteSurvival was called, also for what follows.
absl::StatusOr<bool> MakeReplicated(const v1::JobConfig& config);

// Not enabled if there is no path. INVALID_ARGUMENT with a line for each bad
// field: "field is value; allowed: ...". `config_text` is left empty.
absl::StatusOr<CheckpointOptions> MakeCheckpointOptions(
    const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_SURVIVAL_CONFIG_H_
