// When a round closes: a pure function of who has joined, who has committed
// and the time, which gives the same answer when it is asked twice.
// ArrivalTimes remembers what the function needs to know of earlier rounds.
#ifndef AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_
#define AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

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
  // Deadline after waiting_since, by how the last rounds went
  // (ArrivalTimes::Timeout); 0: not known. A round_timeout stays the upper
  // bound.
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

// A row that a round closed with.
struct RowArrival {
  int32_t rank = 0;
  absl::Time committed_at;
};

// How one rank's rows have come, over all sessions of the rank.
struct RankArrivals {
  uint64_t late_rows = 0;   // came when their round had closed: dropped
  uint64_t last_rows = 0;   // the last of two or more rows of their round
  absl::Duration lateness;  // median of its last rows, late ones included
};

// When the rows of the last rounds came: what a round_timeout can be taken
// from, and which workers are late as a habit. Pure: all times are given. A
// row's lateness is its commit's time less that of the first commit of its
// round: what all workers wait for together (a slow pull, an evaluation in
// each) makes nobody late. A late row's lateness counts like the others', once
// it comes; else the timeout would shorten itself, as it would see only the
// rows that it let in.
//
// Thread-compatible. Counts are those of the process; an epoch begins anew with
// who is late for what, since a worker that repeats a Commit after a recovery
// is not late.
class ArrivalTimes {
 public:
  static constexpr int kNumRounds = 16;   // that Timeout looks back on
  static constexpr int kMinSamples = 8;   // fewer rows tell nothing
  static constexpr int kNumPerRank = 32;  // latenesses for the rank's median
  static constexpr absl::Duration kMinTimeout = absl::Milliseconds(10);

  // `mad_factor`: k below; 0: Timeout is 0.
  explicit ArrivalTimes(double mad_factor) : mad_factor_(mad_factor) {}

  // An epoch begins with the open round `version`. Of earlier rounds nobody is
  // counted as late, and this one has no Timeout: after a recovery workers come
  // back one by one.
  void BeginEpoch(uint64_t version);
  // A round has ended: it closed with these rows.
  void NoteRound(uint64_t round, const std::vector<RowArrival>& rows);
  // A commit of `rank` has come for a round that had begun to close without it,
  // or has ended. Repeats, and rows that the round did have, count for nothing.
  void NoteLate(int32_t rank, uint64_t round, absl::Time now);

  // How long a round may wait after its first commit, as of the last NoteRound:
  //   max(median + k * MAD, 2 * median, kMinTimeout)
  // over the latenesses of the last kNumRounds rounds' rows, without the first
  // row of each, which is 0 by definition. MAD is the median of the absolute
  // differences from the median, not scaled to a standard deviation (F. Hampel,
  // The influence curve and its role in robust estimation, JASA 69, 1974). The
  // two other terms keep rows in that are a little late where all rows come at
  // about the same time, so that the MAD is next to 0. 0: off, or fewer than
  // kMinSamples rows.
  absl::Duration Timeout() const { return timeout_; }

  RankArrivals Of(int32_t rank) const;

 private:
  struct Rank {
    uint64_t late_rows = 0;
    uint64_t last_rows = 0;
    std::deque<absl::Duration> latenesses;  // oldest first
    uint64_t next_round = 0;  // of earlier ones, the rank's row is known
  };
  struct Round {
    uint64_t round = 0;
    absl::Time first_commit;
    std::vector<absl::Duration> latenesses;  // without the first row's
  };

  void CountLate(int32_t rank, uint64_t round, absl::Time now);
  void AddLateness(Rank* rank, absl::Duration lateness);
  absl::Duration ComputeTimeout() const;

  double mad_factor_;
  uint64_t first_round_ = 0;  // of the epoch
  uint64_t next_round_ = 0;   // earlier ones have ended
  std::map<int32_t, Rank> ranks_;
  std::deque<Round> rounds_;  // oldest first, kNumRounds at most
  // Late for the round that is closing: it counts once that has ended.
  std::map<int32_t, absl::Time> pending_;
  absl::Duration timeout_ = absl::ZeroDuration();
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CLOSE_POLICY_H_
