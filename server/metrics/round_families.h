// The series of the rounds: gradient geometry, AdaScale, outcomes, phases.
#ifndef AGG_SERVER_METRICS_ROUND_FAMILIES_H_
#define AGG_SERVER_METRICS_ROUND_FAMILIES_H_

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/metrics/round_state.h"
#include "server/round/combination_names.h"

namespace agg {

// Adds the families under "Rounds", "Geometry" and "Step scale" of README.md.
// REQUIRES: `state` was made with the same `options`.
// `combination` is of the open round: other labels from one scrape to the next
// mean that it was changed, and the series of the former ones end.
void AddRoundFamilies(const MetricsOptions& options,
                      const CombinationNames& combination,
                      const RoundState& state, FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_ROUND_FAMILIES_H_
