// Which workers have the same parameters, where the workers themselves step
// them: a pure function of what their commits said (P49).
#ifndef AGG_SERVER_COORDINATOR_REPLICA_GROUPS_H_
#define AGG_SERVER_COORDINATOR_REPLICA_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/round/round_report.h"

namespace agg {

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

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_REPLICA_GROUPS_H_
