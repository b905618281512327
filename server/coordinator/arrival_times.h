// When the rows of the last rounds came: what a round_timeout can be taken
// from, and which workers are late as a habit. Pure: all times are given.
#ifndef AGG_SERVER_COORDINATOR_ARRIVAL_TIMES_H_
#define AGG_SERVER_COORDINATOR_ARRIVAL_TIMES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/time/time.h"

namespace agg {

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

// A row's lateness is its commit's time less that of the first commit of its
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

#endif  // AGG_SERVER_COORDINATOR_ARRIVAL_TIMES_H_
