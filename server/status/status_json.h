// What the status page shows, as JSON.
#ifndef AGG_SERVER_STATUS_STATUS_JSON_H_
#define AGG_SERVER_STATUS_STATUS_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/base/json.h"
#include "server/metrics/metrics_options.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"
#include "server/status/round_history.h"

namespace agg {

// Constant for a process.
struct StatusPageOptions {
  MetricsOptions metrics;           // job, ordinal, workers, names, version
  std::vector<std::string> shards;  // addresses by ordinal
  std::string coordinator_host;     // of shard 0
  int coordinator_port = 0;         // of its page; 0: not known
  std::string instance;             // another one for each process
  bool identities = false;          // callers are asked who they are
};

// The member "server" of /status.json and of a report.
Json ServerJson(const StatusPageOptions& options);

// The complete /status.json, as of now. `history` is null, and `job` nullopt,
// on other ordinals than 0; `round_log` is nullopt without one. `after` as in
// RoundHistory::AddTo.
std::string StatusJson(const StatusPageOptions& options,
                       const ShardStatus& shard,
                       const std::optional<JobStatus>& job,
                       const RoundHistory* history,
                       const std::optional<RoundLogStatus>& round_log,
                       uint64_t after);

}  // namespace agg

#endif  // AGG_SERVER_STATUS_STATUS_JSON_H_
