// The shards that somebody stops in good order, and that serve until they are
// let go (P35): pure, apart from the coordinator so that it can be tested
// without shards and disks.
#ifndef AGG_SERVER_COORDINATOR_HANDOVER_H_
#define AGG_SERVER_COORDINATOR_HANDOVER_H_

#include <cstdint>
#include <set>

#include "absl/time/time.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/round/recovery.h"

namespace agg {

// Handles one epoch, whose end serves all shards that wait then.
// Thread-compatible.
class Handover {
 public:
  // How long the job stands still for the checkpoint.
  static constexpr absl::Duration kLimit = absl::Seconds(30);

  enum class Step {
    kNone,            // nobody waits
    kTakeCheckpoint,  // request one, and say so by NoteRequest
    kWait,            // until a checkpoint has ended, or until deadline()
    kLetGo,           // end the epoch
  };

  // Shard `ordinal` waits in `epoch`. Nothing happens if the epoch is older
  // than the one that another shard waits in.
  void Add(uint64_t epoch, int ordinal);
  // Whether a shard waits in this epoch. REQUIRES: epoch != 0.
  bool on(uint64_t epoch) const { return epoch_ == epoch; }
  // What to do next for a job that stands still at `id`, until a checkpoint
  // has exactly that. REQUIRES: a shard waits.
  Step Next(const CheckpointSchedule& checkpoints, const VersionId& id,
            absl::Time now) const;
  void NoteRequest() { requested_ = true; }
  // No round is in execution any more: from here on the limit counts.
  void StandStill(absl::Time now);
  absl::Time deadline() const { return deadline_; }
  // Lets all of them go: nobody waits any more. Returns their ordinals.
  std::set<int> Take();

 private:
  uint64_t epoch_ = 0;  // 0: nobody waits
  std::set<int> shards_;
  bool requested_ = false;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_HANDOVER_H_
