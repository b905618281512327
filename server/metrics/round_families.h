// The series of the rounds: gradient geometry, AdaScale, outcomes, phases.
#ifndef AGG_SERVER_METRICS_ROUND_FAMILIES_H_
#define AGG_SERVER_METRICS_ROUND_FAMILIES_H_

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/metrics/round_state.h"

namespace agg {

// Adds the families under "Rounds", "Geometry" and "Step scale" of README.md.
// REQUIRES: `state` was made with the same `options`.
void AddRoundFamilies(const MetricsOptions& options, const RoundState& state,
                      FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_ROUND_FAMILIES_H_
