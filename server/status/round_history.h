// The last rounds of a job, for the status page and for traces.
#ifndef AGG_SERVER_STATUS_ROUND_HISTORY_H_
#define AGG_SERVER_STATUS_ROUND_HISTORY_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/json_writer.h"
#include "server/base/mutex.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "server/status/round_point.h"

namespace agg {

// Bounded: `max_rounds` points, and one round in detail. Thread-safe.
class RoundHistory {
 public:
  struct Options {
    size_t max_rounds = 512;
    int32_t max_tensors = 32;  // the largest ones are shown
  };
  explicit RoundHistory(const Options& options) : options_(options) {}

  // The manifest's tensors (name, elements). Other ones than before: what was
  // kept of the rounds goes.
  void SetTensors(const std::vector<std::pair<std::string, int64_t>>& tensors);
  void Add(const RoundReport& report);

  // Members of the object that *json is in: "tensors", "outcomes", "last",
  // "next", and "rounds": those whose sequence number is at least `after` (at
  // most `max_rounds`); `next` is what to ask for next time.
  void Write(uint64_t after, JsonWriter* json) const;

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
  std::string last_ ABSL_GUARDED_BY(mutex_) = "null";  // JSON
};

}  // namespace agg

#endif  // AGG_SERVER_STATUS_ROUND_HISTORY_H_
