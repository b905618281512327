// With second copies a checkpoint is taken as well: all shards may be stopped
// at once, and the first one's stop releases all of them.
#include "server/coordinator/handover.h"

#include <utility>

namespace agg {

void Handover::Add(uint64_t epoch, int ordinal) {
  if (epoch < epoch_) return;
  if (epoch > epoch_) {
    epoch_ = epoch;
    shards_.clear();
    requested_ = false;
    deadline_ = absl::InfiniteFuture();
  }
  shards_.insert(ordinal);
}

void Handover::StandStill(absl::Time now) {
  if (deadline_ == absl::InfiniteFuture()) deadline_ = now + kLimit;
}

Handover::Step Handover::Next(const CheckpointSchedule& checkpoints,
                              const VersionId& id, absl::Time now) const {
  if (checkpoints.Has(id) || now >= deadline_) return Step::kLetGo;
  if (checkpoints.requested() || checkpoints.busy()) return Step::kWait;
  // The one that was requested has failed: another one would, too.
  return requested_ ? Step::kLetGo : Step::kTakeCheckpoint;
}

std::set<int> Handover::Take() {
  epoch_ = 0;
  return std::exchange(shards_, {});
}

}  // namespace agg
