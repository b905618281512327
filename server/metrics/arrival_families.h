// The series about when workers' rows come: how long rounds may wait, and who
// is late as a habit. Sampled at scrape, by the coordinator alone.
#ifndef AGG_SERVER_METRICS_ARRIVAL_FAMILIES_H_
#define AGG_SERVER_METRICS_ARRIVAL_FAMILIES_H_

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/round/round_report.h"

namespace agg {

// A series for each worker that is in, with a rank below options.max_workers.
void AddArrivalFamilies(const MetricsOptions& options, const JobStatus& status,
                        FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_ARRIVAL_FAMILIES_H_
