// What the status page shows, as JSON.
#ifndef AGG_SERVER_STATUS_STATUS_JSON_H_
#define AGG_SERVER_STATUS_STATUS_JSON_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/json.h"
#include "server/base/mutex.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"
#include "server/status/round_point.h"

namespace agg {

// The last rounds of a job, for the status page and for traces. Bounded:
// `max_rounds` points, and one round in detail. Thread-safe.
class RoundHistory {
 public:
  struct Options {
    size_t max_rounds = 512;
    int32_t max_tensors = 32;  // the largest ones are shown
  };
  explicit RoundHistory(const Options& options) : options_(options) {}

  // The manifest's tensors (name, elements). If they are not those of before,
  // the kept rounds are dropped: they are another model's.
  void SetTensors(const std::vector<std::pair<std::string, int64_t>>& tensors);
  void Add(const RoundReport& report);

  // Adds the job's members of /status.json to the object `*json`: "tensors",
  // "numbers" (tiles), "outcomes", "last", "next", and "rounds": those whose
  // sequence number is at least `after` (at most `max_rounds`). `next` is what
  // to ask for next time.
  void AddTo(uint64_t after, Json* json) const;

  // The kept rounds, oldest first.
  std::vector<RoundPoint> Points() const;

 private:
  struct Outcomes {
    int64_t applied = 0, skipped = 0, excluded_rows = 0;
    int64_t compensated = 0, adacons_fallbacks = 0;
  };

  const Options options_;
  mutable Mutex mutex_;
  TensorSelection selection_ ABSL_GUARDED_BY(mutex_);
  std::deque<RoundPoint> points_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  Outcomes outcomes_ ABSL_GUARDED_BY(mutex_);  // since the process started
  // The last applied round in detail, never changed once it is here; or null.
  std::shared_ptr<const Json> last_ ABSL_GUARDED_BY(mutex_);
};

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
