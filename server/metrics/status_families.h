// The series that are sampled at scrape: the job as the coordinator sees it,
// one shard's transport and memory plan, and its process.
#ifndef AGG_SERVER_METRICS_STATUS_FAMILIES_H_
#define AGG_SERVER_METRICS_STATUS_FAMILIES_H_

#include <cstdint>
#include <optional>

#include "server/metrics/family_builder.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"

namespace agg {

// What this process takes of its machine. NaN where the kernel does not say.
struct ProcessUsage {
  double resident_bytes = 0.0;      // physical memory, libraries included
  double virtual_bytes = 0.0;       // address space, used or not
  double cpu_seconds = 0.0;         // of all threads, user and system
  double start_time_seconds = 0.0;  // Unix time of the process's start
  double open_files = 0.0;          // file descriptors, sockets included
  double max_open_files = 0.0;      // the soft limit; +Inf: none
};

// What a process knows of itself and the kernel does not say of it.
struct ProcessState {
  bool stopping = false;           // it was told to stop, in good order
  int64_t memory_limit_bytes = 0;  // of its control group; 0: none
  uint64_t audit_errors = 0;       // lines that are missing from the file
};

// Reads /proc/self: some tens of microseconds. Thread-safe.
ProcessUsage ReadProcessUsage();

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
void AddProcessFamilies(const ProcessUsage& usage, const ProcessState& state,
                        FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_STATUS_FAMILIES_H_
