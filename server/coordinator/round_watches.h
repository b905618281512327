// What is watched over the rounds of a job, and said to people: whether
// replicas and rows are alike, whether enough workers are in, which rounds
// brought nothing, and who is waited for. The coordinator has the state and the
// clock.
#ifndef AGG_SERVER_COORDINATOR_ROUND_WATCHES_H_
#define AGG_SERVER_COORDINATOR_ROUND_WATCHES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/close_policy.h"
#include "server/round/round_report.h"

namespace agg {

// Which workers have the same parameters, where the workers themselves step
// them: a pure function of what their commits said (P49). Groups the workers of
// one round by their parameters. Workers that sent no digest are in none of the
// groups.
struct ReplicaGroups {
  // Ranks with the same digest, ascending; the largest group first, of equal
  // ones the one with the lowest rank.
  std::vector<std::vector<int32_t>> groups;
  // Ranks outside of the first group, if that one has more than half of all:
  // then the others are compared with it. Else all, since nobody can say who is
  // right. Ascending; none if all are the same.
  std::vector<int32_t> differing;

  bool differ() const { return groups.size() > 1; }
  // One sentence that names the ranks, and what to do; "" if none differ.
  std::string Text() const;
};

// Groups the workers by the parameters_digest of their rows.
ReplicaGroups GroupReplicas(const RoundReport& report);

// Whether workers that step the parameters themselves still have the same ones.
// ReplicaGroups is pure; this remembers, and writes to the log. Watches one
// epoch. Thread-compatible.
class ReplicaWatch {
 public:
  // A digest is of a part of the parameters, another one in each round (P49): a
  // difference is over when none was seen in so many rounds.
  static constexpr uint64_t kQuietRounds = 64;

  // `fails`: a difference ends the job.
  explicit ReplicaWatch(bool fails) : fails_(fails) {}

  // Notes the groups of round `round`. Logs a line when other ranks differ than
  // before, and when none has for kQuietRounds.
  void Note(uint64_t round, const ReplicaGroups& replicas);
  // ReplicaGroups::differing of the last round that had some; none once that is
  // kQuietRounds ago.
  const std::vector<int32_t>& differing() const { return differing_; }
  // One sentence for people; "" while none differ.
  std::string Text() const;
  // Why the job has to end; "" while it has not to.
  std::string FailureText() const;

 private:
  bool fails_;
  std::vector<int32_t> differing_;
  std::string text_;
  uint64_t last_round_ = 0;  // that had a difference
};

// Whether a job has fewer workers than its floor, and since when. The close
// policy is pure; this remembers, and writes to the log. Watches one epoch.
// Thread-compatible.
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

// How many rounds in a row brought nothing, and what is said of it: they were
// skipped, or their parameters are not finite. A round's report knows one round
// only. Counts the rounds of one epoch: a new seed begins anew.
// Thread-compatible.
class SkippedRun {
 public:
  // The job is to end after `max_rounds` such rounds in a row; 0: never.
  explicit SkippedRun(uint64_t max_rounds) : max_rounds_(max_rounds) {}

  // A round has ended. One without any row says nothing of the parameters: it
  // neither counts nor ends a run.
  void Note(const RoundReport& report);
  // Skipped rounds in a row.
  uint64_t length() const { return length_; }
  // Rounds in a row with parameters that are not finite, the one that made
  // them so included. A skipped round leaves the parameters as they are.
  uint64_t not_finite_length() const {
    return not_finite_.has_value() ? 1 + num_after_ : 0;
  }
  // Whether the round of the last Note deserves its line in the log: not each
  // one of thousands, but the 1st, the 10th, the 100th.
  bool worth_a_line() const;
  // "the parameters have not been finite since round 0 (tensor "w", .."; "":
  // they are, as far as this epoch's rounds say.
  std::string NotFiniteText() const;
  // Text for people who ask how the job is; "" while at most one round was
  // skipped and the parameters are finite.
  std::string Text() const;
  // Why the job has to end; "" while it has not to.
  std::string FailureText() const;

 private:
  uint64_t max_rounds_;
  uint64_t length_ = 0;
  std::string last_reason_;
  // The first update that left parameters that are not finite, and the rounds
  // after it. An update that leaves finite ones ends this.
  std::optional<NotFiniteParameters> not_finite_;
  uint64_t not_finite_since_ = 0;
  uint64_t num_after_ = 0;
};

// What the log says about a round, and for which reason: a worker whose rows
// are left out has mostly such a row in each round, and lines of one reason are
// one in a minute (server/base/line_limits.h).
struct RoundLine {
  std::string text;  // "": nothing
  std::string reason;
};

// `run` has noted the round.
RoundLine LineOf(const RoundReport& report, const SkippedRun& run);

// One round with equal rows may be chance, or a first step from the same
// batch; so many in a row are not.
inline constexpr int kEqualRowsRounds = 3;

// When a round's message says that workers' rows are equal. Thread-compatible.
class EqualRowsRun {
 public:
  // Whether this applied round's message is to name its equal rows: the
  // kEqualRowsRounds-th one in a row with the same ranks, and once for these.
  bool Note(const RoundReport& report);

 private:
  std::vector<std::vector<int32_t>> ranks_;  // of the last round
  std::vector<std::vector<int32_t>> said_;
  int length_ = 0;
};

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
  // Time since when rows are waited for; InfiniteFuture: nobody has committed.
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

#endif  // AGG_SERVER_COORDINATOR_ROUND_WATCHES_H_
