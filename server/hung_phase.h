// Whether a phase of this process's own shard hangs. Nothing can stop a call of
// a backend, so that the process has to end (P31); the coordinator's watch over
// all shards is server/coordinator/phase_watch.h.
#ifndef AGG_SERVER_HUNG_PHASE_H_
#define AGG_SERVER_HUNG_PHASE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Thread-compatible.
class HungPhase {
 public:
  explicit HungPhase(absl::Duration timeout) : timeout_(timeout) {}

  // To be asked often, by a clock that leaves out what the process spent frozen
  // (P31). A phase that makes progress does not hang. "phase close of round 7
  // has hung for 10m (phase_timeout_seconds)", once for each phase; "": none
  // does.
  std::string Look(const std::optional<RunningPhase>& running, absl::Time now);

 private:
  const absl::Duration timeout_;
  uint64_t number_ = 0;    // of the phase that is watched; 0: none
  uint64_t progress_ = 0;  // of it, as it was last
  absl::Time since_;       // it has not moved
  bool said_ = false;
};

}  // namespace agg

#endif  // AGG_SERVER_HUNG_PHASE_H_
