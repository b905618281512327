// When a round closes: a pure function of who has joined, who has committed
// and the time. No state; asking twice gives the same answer.
#ifndef AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_
#define AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_

#include <cstdint>

#include "absl/time/time.h"

namespace agg {

// What happens while fewer than min_workers are in a job that has started.
enum class FloorPolicy : uint8_t {
  kWait,  // no round closes
  kWarn,  // rounds go on
  kFail   // no round closes, and after floor_timeout the job ends
};

struct CloseOptions {
  int32_t workers = 1;      // expected
  int32_t min_workers = 1;  // to begin with after start_timeout, and to go on
  absl::Duration start_timeout = absl::ZeroDuration();  // 0: never early
  absl::Duration round_timeout = absl::ZeroDuration();  // 0: off
  FloorPolicy floor_policy = FloorPolicy::kWait;
  absl::Duration floor_timeout = absl::ZeroDuration();  // with kFail
  int32_t quorum = 0;  // rows that close a round; 0: all members' rows
};

// A plain picture of the open round.
struct CloseSnapshot {
  bool started = false;           // round 0 has had its workers
  int32_t num_members = 0;        // that take part in the round
  int32_t num_waiting = 0;        // members without a commit
  int32_t num_contributions = 0;  // commits, also of workers that have gone
  int32_t num_joining = 0;        // members that wait for the next round
  int32_t num_live = 0;           // sessions, whatever round they wait for
  // Ranks that are in, or have committed the open round and gone (P6).
  int32_t num_in = 0;
  // The last one to be in left by itself: nobody is missing.
  bool all_left = false;
  absl::Time opened_at;  // the version was published
  // The first commit, or the start if that came later.
  // REQUIRES: num_contributions > 0
  absl::Time waiting_since;
  // After waiting_since, by how the last rounds went (ArrivalTimes::Timeout);
  // 0: not known. A round_timeout stays the upper bound.
  absl::Duration usual_timeout = absl::ZeroDuration();
  // When num_in fell below min_workers; InfiniteFuture: it has not.
  absl::Time below_floor_since = absl::InfiniteFuture();
};

struct CloseDecision {
  bool start = false;  // round 0 may begin: enough workers have joined
  bool close = false;
  bool fail = false;  // the job was below its floor for too long
  // When to ask again if nothing changes before; InfiniteFuture: never.
  absl::Time ask_again_at = absl::InfiniteFuture();
};

// Whether a job that has started has fewer workers than its floor.
bool IsBelowFloor(const CloseOptions& options, const CloseSnapshot& snapshot);

// How long after its first commit a round closes at the latest; 0: it has no
// such limit.
absl::Duration TimeoutOf(const CloseOptions& options,
                         const CloseSnapshot& snapshot);

// Each round takes rows of its own version only. It closes
//  - when every member has committed, and there is a commit;
//  - with a quorum: when so many rows are committed, of workers that are in or
//    have gone since;
//  - with a timeout: that long after the first commit at the latest, with
//    however few rows;
//  - without any row: when all members have gone and somebody waits for the
//    next round.
// Nothing closes before the job has started, and below the floor nothing with a
// row in it (P2). A round without a row may close there: it changes nothing,
// and lets those in who wait for the next one.
CloseDecision DecideClose(const CloseOptions& options,
                          const CloseSnapshot& snapshot, absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_
