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

// The series about when workers' rows come: how long rounds may wait, and who
// is late as a habit. Sampled at scrape, by the coordinator alone.

// A series for each worker that is in, with a rank below options.max_workers.
void AddArrivalFamilies(const MetricsOptions& options, const JobStatus& status,
                        FamilyBuilder* builder);

// The series about what the job would survive now: copies in memory,
// recoveries, checkpoints. Sampled at scrape, by the coordinator alone.

// Adds the families under "Survival" of README.md. Those of checkpoints are 0
// where none are configured: NaN says that there is none yet.
void AddSurvivalFamilies(const MetricsOptions& options, const JobStatus& status,
                         FamilyBuilder* builder);

// Who shares memory with whom, and who does not: sampled at each scrape.

// How workers say that they reach the shards; of the coordinator.
void AddLinkFamilies(const MetricsOptions& options, const JobStatus& status,
                     FamilyBuilder* builder);

// What a shard wanted to share with workers and could not.
void AddFallbackFamilies(const ShardStatus& status, FamilyBuilder* builder);

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
