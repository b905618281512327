// Whether workers that step the parameters themselves still have the same ones.
// Apart from ReplicaGroups, which is pure: this remembers, and writes to the
// log.
#ifndef AGG_SERVER_COORDINATOR_REPLICA_WATCH_H_
#define AGG_SERVER_COORDINATOR_REPLICA_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/round/round_report.h"

namespace agg {

// Which workers have the same parameters, where the workers themselves step
// them: a pure function of what their commits said (P49).

// Groups the workers of one round by their parameters. Workers that sent no
// digest are in none of the groups.
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

// Groups the workers by the report's parameters_digests.
ReplicaGroups GroupReplicas(const RoundReport& report);

// Watches one epoch. Thread-compatible.
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

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_REPLICA_WATCH_H_
