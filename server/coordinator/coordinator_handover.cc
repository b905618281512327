// Shards that are stopped in good order (P35). The loop sees them between two
// rounds, so that a round in execution is finished first; then rounds stand
// still until a checkpoint has exactly this version, and the epoch ends.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/handover.h"
#include "server/coordinator/job_state.h"
#include "server/round/orderly_stop.h"

namespace agg {

void Coordinator::NoteDraining(uint64_t epoch, int ordinal) {
  MutexLock lock(&mutex_);
  state_.NoteDraining(epoch, ordinal);
  changed_.NotifyAll();
}

bool Coordinator::HandOverIfDue() {
  uint64_t epoch = 0;
  std::set<int> shards;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const Handover::Step step = state_.NextHandover(now);
    if (step == Handover::Step::kNone) return false;
    state_.handover()->StandStill(now);
    if (step == Handover::Step::kTakeCheckpoint) {
      state_.handover()->NoteRequest();
      state_.checkpoints()->Request(nullptr);
      return true;
    }
    if (step != Handover::Step::kLetGo) return false;
    const JobState& job = *state_.job();
    epoch = job.epoch();
    shards = state_.handover()->Take();
    if (options_.checkpoint.enabled && job.seeded() &&
        !state_.checkpoints()->Has(job.id())) {
      LogWarning("version ", job.version(), " has no checkpoint, yet ",
                 "shards that are being stopped are let go");
    }
  }
  std::vector<std::string> names;
  for (const int shard : shards) names.push_back(peers_.peer(shard)->name());
  const absl::Status reason = OrderlyStop(
      absl::StrCat(absl::StrJoin(names, ", "),
                   names.size() == 1 ? " is" : " are", " shutting down"));
  LoseEpoch(epoch, reason);
  PropagateLoss();
  // A finished job may keep its epoch: those who wait are let go alone.
  for (const int shard : shards) peers_.peer(shard)->Lose(epoch, reason);
  return true;
}

}  // namespace agg
