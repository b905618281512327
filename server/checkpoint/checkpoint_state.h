// Which checkpoints there are, and which one a job goes on from: pure, so that
// the coordinator decides by what all processes have reported.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_STATE_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_STATE_H_

#include <set>
#include <vector>

#include "absl/types/optional.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

// What one process sees of a checkpoint.
struct CheckpointState {
  CheckpointId id;
  int num_shards = 0;      // by the names of the parts; 0: there is none
  std::vector<int> parts;  // ordinals, ascending
  bool manifest = false;
};

// The newest that is complete: one process sees the manifest, and each part is
// seen by some process. `states`: of all processes, in any order. `refused`:
// those that turned out to be damaged. Nothing if none is complete.
absl::optional<CheckpointId> NewestCheckpoint(
    const std::vector<CheckpointState>& states,
    const std::set<CheckpointId>& refused);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_STATE_H_
