// The series about what the job would survive now: copies in memory,
// recoveries, checkpoints. Sampled at scrape, by the coordinator alone.
#ifndef AGG_SERVER_METRICS_SURVIVAL_FAMILIES_H_
#define AGG_SERVER_METRICS_SURVIVAL_FAMILIES_H_

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/round/round_report.h"

namespace agg {

// Adds the families under "Survival" of README.md. Those of checkpoints are 0
// where none are configured: NaN says that there is none yet.
void AddSurvivalFamilies(const MetricsOptions& options, const JobStatus& status,
                         FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_SURVIVAL_FAMILIES_H_
