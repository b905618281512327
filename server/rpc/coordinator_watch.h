// Since when a shard is without its coordinator (P24). It is apart from the
// service so that it can be tested without streams.
#ifndef AGG_SERVER_RPC_COORDINATOR_WATCH_H_
#define AGG_SERVER_RPC_COORDINATOR_WATCH_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace agg {

// Counts the Attach streams of the newest epoch: the coordinator may be back on
// a new stream before the end of the broken one is seen. Thread-safe.
class CoordinatorWatch {
 public:
  // `clock` outlives it, and should leave out what the process spent frozen
  // (P31).
  explicit CoordinatorWatch(const Clock* clock) : clock_(clock) {}

  // A stream has begun `epoch`, or has attached it once more. `life`: of the
  // coordinator; 0 (of an older release) never comes back.
  void Begin(uint64_t epoch, uint64_t life);
  // A stream wants to go on with `epoch`. ABORTED unless this coordinator has
  // begun it here, and it has not been taken by TakeAbandoned.
  absl::Status Resume(uint64_t epoch, uint64_t life);
  // A stream for which Begin or Resume was called has ended.
  void End(uint64_t epoch);
  // The epoch whose coordinator has been away for kResumeTime; once.
  std::optional<uint64_t> TakeAbandoned();

 private:
  const Clock* const clock_;
  Mutex mutex_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none, or abandoned
  uint64_t life_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time away_since_ ABSL_GUARDED_BY(mutex_);  // if there is no stream
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_COORDINATOR_WATCH_H_
