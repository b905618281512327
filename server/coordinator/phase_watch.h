// Which shards a phase waits for, and since when: for the deadline of a phase
// and for people who look. Apart from RoundEngine because the loop that runs
// the engine is what may be stuck.
#ifndef AGG_SERVER_COORDINATOR_PHASE_WATCH_H_
#define AGG_SERVER_COORDINATOR_PHASE_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"

namespace agg {

// A shard that has taken longer for a phase than it may without progress.
struct LatePhase {
  int shard = 0;
  uint64_t epoch = 0;
  // "shard 1 (h:2) has not answered phase close of round 7 within 10m", or "has
  // made no progress in phase recover of round 0 for 10m".
  std::string text;
};

// Thread-safe.
class PhaseWatch {
 public:
  // `shards`: their names, by ordinal. `clock` outlives it, and should leave
  // out what the process spent frozen (P31).
  PhaseWatch(const Clock* clock, absl::Duration timeout,
             std::vector<std::string> shards);

  // A phase is asked of a shard, from construction to destruction.
  class Call {
   public:
    Call(PhaseWatch* watch, int shard, const Phase& phase);
    // Another call that may take long, by its name.
    Call(PhaseWatch* watch, int shard, const char* name, uint64_t epoch);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    PhaseWatch* const watch_;
    const int shard_;
  };

  // Each late call once. `progress`: of each shard (ShardPeer::Progress), by
  // ordinal; a call is late when that has not moved for the timeout (P31).
  std::vector<LatePhase> TakeLate(const std::vector<uint64_t>& progress = {});
  // Late calls of each shard so far, by ordinal.
  std::vector<uint64_t> num_late() const;
  // "round 7 has waited 12s for shard 1 (h:2) (phase close)"; "" when no shard
  // has been waited for longer than 5 s.
  std::string WaitingText() const;

 private:
  struct Running {
    bool on = false;
    bool said = false;  // by TakeLate
    std::string name;   // "phase close of round 7"
    std::string kind;   // "phase close"
    uint64_t epoch = 0;
    uint64_t round = 0;
    absl::Time since;
    std::optional<uint64_t> progress;  // as TakeLate saw it last
    bool moved = false;                // it has moved since then,
    absl::Time moved_at;               // the last time then
  };

  void Begin(int shard, Running running);

  const Clock* const clock_;
  const absl::Duration timeout_;
  const std::vector<std::string> shards_;
  mutable Mutex mutex_;
  std::vector<Running> running_ ABSL_GUARDED_BY(mutex_);  // by ordinal
  std::vector<uint64_t> num_late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_PHASE_WATCH_H_
