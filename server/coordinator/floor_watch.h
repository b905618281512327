// Whether a job has fewer workers than its floor, and since when. Apart from
// the close policy, which is pure: this remembers, and writes to the log.
#ifndef AGG_SERVER_COORDINATOR_FLOOR_WATCH_H_
#define AGG_SERVER_COORDINATOR_FLOOR_WATCH_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/coordinator/close_policy.h"

namespace agg {

// Watches one epoch. Thread-compatible.
class FloorWatch {
 public:
  explicit FloorWatch(const CloseOptions& options) : options_(options) {}

  // The job is as `snapshot` says. Logs a line when it falls below its floor,
  // and when it is no longer below it.
  void Note(const CloseSnapshot& snapshot, absl::Time now);
  // InfiniteFuture: the job is not below its floor.
  absl::Time below_since() const { return below_since_; }
  bool below() const { return below_since_ != absl::InfiniteFuture(); }
  // One sentence for people, by what the last Note said; "" unless below.
  std::string Text() const;
  // Why the job ends if it has to. REQUIRES: below().
  std::string FailureText() const;

 private:
  CloseOptions options_;
  absl::Time below_since_ = absl::InfiniteFuture();
  int32_t num_in_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_FLOOR_WATCH_H_
