// Who is waited for, as text for the log and for the workers that wait, and
// when to say it. Pure: the coordinator has the state and the clock.
#ifndef AGG_SERVER_COORDINATOR_WAITING_TEXT_H_
#define AGG_SERVER_COORDINATOR_WAITING_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace agg {

// What a job waits for. Ranks ascend.
struct Waiting {
  bool started = false;              // enough workers have joined (P2)
  bool seeded = false;               // version 0 is published
  int32_t expected = 0;              // workers of the job
  std::vector<int32_t> joined;       // ranks that are in
  int32_t seed_rank = -1;            // has the seed role; -1: nobody
  uint64_t round = 0;                // the open round
  std::vector<int32_t> uncommitted;  // members of it that have not committed
  // Ranks that have joined since it began: they wait for the version that it
  // makes.
  std::vector<int32_t> joining;
  // Number of uncommitted members that a quorum still waits for; 0: all.
  int32_t num_needed = 0;
  // Since when rows are waited for; InfiniteFuture: nobody has committed.
  absl::Time rows_since = absl::InfiniteFuture();
  bool has_round_timeout = false;
  // What holds the rounds while too few workers are in, as FloorWatch::Text
  // says it; "": nothing.
  std::string floor;
};

// "rank 3", "ranks 1-31", "ranks 0,2,5-9 and 12 more". At most ten of the parts
// between commas are named. "no rank" for none.
std::string RanksText(const std::vector<int32_t>& ranks);

// "31 of 32 workers have not joined: ranks 1-31" before the start, then "rank 0
// has not seeded the parameters", then "round 7 has waited 1m5s for rank 3
// (round_timeout is off)", or why a round waits though nobody is late: the
// floor, or "rank 1 has joined during round 7 and waits for its end; rank 3 has
// not committed"; "": nobody is waited for.
std::string WaitingText(const Waiting& waiting, absl::Time now);

// When WaitingText is to be said. Thread-compatible.
class WaitingReport {
 public:
  // `start`: quiet time before a missing worker or seed is named, counted from
  // the last change (each Join is progress). `straggler`: the same for missing
  // rows, counted from the first commit of the round. Said again after another
  // `straggler`, if that is positive. Not positive: never said.
  WaitingReport(absl::Duration start, absl::Duration straggler)
      : start_(start), straggler_(straggler) {}

  // What to say now; "": nothing. To be called when the state has changed, and
  // at next_at().
  std::string Say(const Waiting& waiting, absl::Time now);
  // When Say may have something to say if nothing changes.
  absl::Time next_at() const { return next_at_; }

 private:
  absl::Duration start_;
  absl::Duration straggler_;
  // What was waited for at the last call, as far as a change begins the quiet
  // time again.
  struct Key {
    int phase = 0;  // 0: nothing
    uint64_t count = 0;
    bool operator==(const Key& other) const {
      return phase == other.phase && count == other.count;
    }
  };
  static Key KeyOf(const Waiting& waiting);

  Key key_;
  absl::Time next_at_ = absl::InfiniteFuture();
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_WAITING_TEXT_H_
