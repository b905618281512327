// Processes that are stopped in good order: the coordinator's own, and shards
// (P35).
#include <utility>

#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/handover.h"

namespace agg {

DeferredCalls CoordinatorState::BeginDraining() {
  if (std::exchange(draining_, true)) return {};
  return Broadcast({JobEventKind::kDraining,
                    job_ == nullptr ? 0 : job_->version(),
                    "the coordinator is shutting down"});
}

void CoordinatorState::NoteDraining(uint64_t epoch, int ordinal) {
  // It may be an epoch that is still being recovered.
  if (epoch == last_epoch_) handover_.Add(epoch, ordinal);
}

Handover::Step CoordinatorState::NextHandover(absl::Time now) const {
  if (!epoch_on_ || !handover_.on(job_->epoch())) return Handover::Step::kNone;
  if (!options_.checkpoint.enabled || !job_->seeded()) {
    return Handover::Step::kLetGo;
  }
  return handover_.Next(checkpoints_, job_->id(), now);
}

}  // namespace agg
