// Who shares memory with whom, and who does not: sampled at each scrape.
#ifndef AGG_SERVER_METRICS_TRANSPORT_FAMILIES_H_
#define AGG_SERVER_METRICS_TRANSPORT_FAMILIES_H_

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/round/round_report.h"

namespace agg {

// How workers say that they reach the shards; of the coordinator.
void AddLinkFamilies(const MetricsOptions& options, const JobStatus& status,
                     FamilyBuilder* builder);

// What a shard wanted to share with workers and could not.
void AddFallbackFamilies(const ShardStatus& status, FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_TRANSPORT_FAMILIES_H_
