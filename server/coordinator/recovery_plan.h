// What becomes of a job's copies after an epoch has ended, from what all
// processes report (P18). Pure, and apart from the coordinator that carries it
// out: equal inventories give equal decisions, and asking again after the
// actions gives "all are there". tests/sim/protocol_recovery.py is the same
// function in the protocol's model, and a test compares the two.
#ifndef AGG_SERVER_COORDINATOR_RECOVERY_PLAN_H_
#define AGG_SERVER_COORDINATOR_RECOVERY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/round/recovery.h"

namespace agg {

struct RecoveryDecision {
  enum class Kind : uint8_t {
    kNothing,   // no copy and no checkpoint anywhere: nothing is to be called
    kWait,      // a checkpoint is needed and cannot be loaded: nothing either
    kGoOn,      // from copies alone; nothing that could be pulled is lost
    kLoad,      // the same, with parts from a checkpoint of the same version
    kRewind,    // all parts from an older checkpoint, as a new history
    kUnseeded,  // copies are left, but not of all parts, and no checkpoint
  };
  Kind kind = Kind::kNothing;
  // Version of all copies in the end; zeros with kNothing, kWait, kUnseeded.
  VersionId target;
  // The checkpoint that is loaded, with kLoad and kRewind.
  absl::optional<VersionId> checkpoint;
  std::vector<RecoverPlan> plans;  // by ordinal
  // True if some copy is void once all have carried out their plans: with
  // replication all have to fetch then. It is never set without replication.
  bool fetch = false;
  std::string text;  // what was found and what is done: one line for the log

  // Whether the job begins anew, by a Seed.
  bool anew() const {
    return kind == Kind::kNothing || kind == Kind::kUnseeded;
  }
};

// `inventories`: of all shards, by ordinal, when they promised `epoch`.
// `replicated`: whether each part has a second copy, at the next shard (P15);
// without, a copy that is prepared holds the next version already, so that one
// that does not step is void. `choice`: the checkpoint that it may load.
RecoveryDecision DecideRecovery(const std::vector<ShardInventory>& inventories,
                                bool replicated, uint64_t epoch,
                                const CheckpointChoice& choice);

// The sessions that go on, by rank: alive in some process and ended in none;
// of several of one rank the highest (P26).
std::vector<MemberState> SurvivingMembers(
    const std::vector<ShardInventory>& inventories);

// The newest facts that a shard has reported (P37); DecideRecovery puts them
// into all plans.
JobFacts NewestFacts(const std::vector<ShardInventory>& inventories);

// The highest session that anybody has heard of: new ones are above it. 0:
// none.
uint64_t HighestSession(const std::vector<ShardInventory>& inventories);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RECOVERY_PLAN_H_
