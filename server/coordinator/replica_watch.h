// Whether workers that step the parameters themselves still have the same ones.
// Apart from ReplicaGroups, which is pure: this remembers, and writes to the
// log.
#ifndef AGG_SERVER_COORDINATOR_REPLICA_WATCH_H_
#define AGG_SERVER_COORDINATOR_REPLICA_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/coordinator/replica_groups.h"

namespace agg {

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
