// The series that are sampled at scrape: the job as the coordinator sees it,
// one shard's transport and memory plan, and its process.
#ifndef AGG_SERVER_METRICS_STATUS_FAMILIES_H_
#define AGG_SERVER_METRICS_STATUS_FAMILIES_H_

#include <optional>

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/metrics/process_usage.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"

namespace agg {

// Adds the families under "Job" and "Survival" of README.md; without a status,
// zeroes and NaN.
void AddJobFamilies(const MetricsOptions& options,
                    const std::optional<JobStatus>& status,
                    FamilyBuilder* builder);

// Adds the families under "Round log" of README.md; zeroes without a log.
void AddRoundLogFamilies(const std::optional<RoundLogStatus>& status,
                         FamilyBuilder* builder);

// Adds the families under "Shard" of README.md.
void AddShardFamilies(const ShardStatus& status, FamilyBuilder* builder);

// Adds the families under "Process" of README.md.
void AddProcessFamilies(const ProcessUsage& usage, FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_STATUS_FAMILIES_H_
