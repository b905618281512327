// What a simulated job is, apart from what happens to it.
#ifndef AGG_TESTS_SIM_SIM_OPTIONS_H_
#define AGG_TESTS_SIM_SIM_OPTIONS_H_

#include <cstdint>

#include "proto/shard_plan.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/peer_group.h"
#include "server/round/shard_options.h"
#include "tests/sim/job_simulation.h"

namespace agg {

constexpr uint64_t kSimRounds = 5;

Manifest MakeSimManifest(int num_shards);
// Two workers and one that joins later, Adam, AdaCons and a shadow rule.
CoordinatorOptions MakeSimOptions(const SimPlan& plan);
ShardOptions MakeSimShardOptions(const SimPlan& plan, int ordinal,
                                 uint64_t life);
// The order of calls to several shards; seed 0: that of the ordinals.
PeerGroup::Order MakeSimOrder(uint64_t seed);

}  // namespace agg

#endif  // AGG_TESTS_SIM_SIM_OPTIONS_H_
