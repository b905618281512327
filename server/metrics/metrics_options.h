// What the metrics of one process get at its start. Plain values.
#ifndef AGG_SERVER_METRICS_METRICS_OPTIONS_H_
#define AGG_SERVER_METRICS_METRICS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace agg {

// One shadow rule, by the names of its line in rule_table.h and of ScopeName.
struct ShadowNames {
  std::string rule;
  std::string scope;
};

struct MetricsOptions {
  std::string job = "default";  // label of every series
  int32_t ordinal = 0;          // label `shard`; 0 has the job's series too
  int32_t shards = 1;           // of the job
  int32_t workers = 1;          // expected; their series exist from the start
  // Effective names, as NamesOf (job_record.h) gives them; shown until there
  // is a JobStatus, which has those of the open round.
  std::string rule = "mean";
  std::string scope = "per_tensor";
  std::string step_scale = "none";
  std::vector<ShadowNames> shadow_rules;  // as in CombineOptions
  // Cardinality: the `max_tensors` tensors with most elements, and ranks
  // below `max_workers`, have series of their own; 0 is none.
  int32_t max_tensors = 32;
  int32_t max_workers = 64;
  bool replicated = false;                // replication "buddy"
  double checkpoint_every_seconds = 0.0;  // 0: not by time, or none at all
  bool insecure = false;  // others than this host's reach it without TLS
  std::string version;    // of the build
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_METRICS_OPTIONS_H_
