// When a round closes: a pure function of who has joined, who has committed
// and the time. No state; asking twice gives the same answer.
#ifndef AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_
#define AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_

#include <cstdint>

#include "absl/time/time.h"

namespace agg {

struct CloseOptions {
  int32_t workers = 1;      // expected
  int32_t min_workers = 1;  // to begin with after start_timeout
  absl::Duration start_timeout = absl::ZeroDuration();  // 0: never early
  absl::Duration round_timeout = absl::ZeroDuration();  // 0: off
};

// A plain picture of the open round.
struct CloseSnapshot {
  bool started = false;           // round 0 has had its workers
  int32_t num_members = 0;        // that take part in the round
  int32_t num_waiting = 0;        // members without a commit
  int32_t num_contributions = 0;  // commits, also of workers that have gone
  int32_t num_joining = 0;        // members that wait for the next round
  absl::Time opened_at;           // the version was published
  // The first commit, or the start if that came later.
  // REQUIRES: num_contributions > 0
  absl::Time waiting_since;
};

struct CloseDecision {
  bool start = false;  // round 0 may begin: enough workers have joined
  bool close = false;
  // When to ask again if nothing changes before; InfiniteFuture: never.
  absl::Time ask_again_at = absl::InfiniteFuture();
};

// Synchronous mode: the round waits for all its members. It closes
//  - when every member has committed, and there is a commit;
//  - with round_timeout: that long after the first commit at the latest;
//  - without any row: when all members have gone and somebody waits for the
//    next round.
// Nothing closes before the job has started (P2).
CloseDecision DecideClose(const CloseOptions& options,
                          const CloseSnapshot& snapshot, absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_
