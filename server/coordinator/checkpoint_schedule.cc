// Decides when a checkpoint is due, by the versions and the time since the last
// attempt, and whether a shard that is to be stopped waits for one.
#include "server/coordinator/checkpoint_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

void CheckpointSchedule::Begin(const VersionId& id,
                               const std::optional<VersionId>& restored,
                               absl::Time now, bool borrowed) {
  tried_ = id;
  tried_at_ = now;
  skipped_ = false;
  if (!restored.has_value()) return;
  counts_.restored_version = restored->version;
  counts_.restored_made = restored->made;
  if (borrowed) return;
  // The newest that can be read; how old it is nobody here knows.
  sealed_ = *restored;
  sealed_at_ = now;
}

// Counts from the last attempt, so that a disk that fails is tried again when
// the next one is due and not at once.
bool CheckpointSchedule::Due(const VersionId& id, bool finished,
                             absl::Time now) const {
  if (!enabled()) return false;
  // These are not skipped.
  if (requested_) return !busy_;
  // The last version is taken in any case (P30), also if it was skipped.
  if (finished) return !busy_ && (skipped_ || !(id == tried_));
  if (id == tried_) return false;
  if (options_.every_rounds > 0 &&
      id.version >= tried_.version + options_.every_rounds) {
    return true;
  }
  return options_.every > absl::ZeroDuration() &&
         now - tried_at_ >= options_.every;
}

absl::Time CheckpointSchedule::NextDue(const VersionId& id,
                                       bool finished) const {
  if (!enabled() || busy_) return absl::InfiniteFuture();
  if (requested_ || (finished && (skipped_ || !(id == tried_)))) {
    return absl::InfinitePast();
  }
  if (id == tried_ || options_.every <= absl::ZeroDuration()) {
    return absl::InfiniteFuture();
  }
  return tried_at_ + options_.every;
}

void CheckpointSchedule::Start(const VersionId& id, absl::Time now) {
  busy_ = true;
  requested_ = false;
  taking_ = std::exchange(waiting_, {});
  taking_id_ = id;
  tried_ = id;
  tried_at_ = now;
  skipped_ = false;
}

// As CheckpointFolder::Retire does: one of each version, the newest.
void CheckpointSchedule::Keep(const VersionId& id) {
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                             [&](const VersionId& other) {
                               return other.version == id.version;
                             }),
              kept_.end());
  kept_.push_back(id);
  if (kept_.size() > static_cast<size_t>(options_.keep)) {
    kept_.erase(kept_.begin());
  }
}

DeferredCalls CheckpointSchedule::End(
    const absl::StatusOr<TakenCheckpoint>& result, absl::Time now) {
  busy_ = false;
  if (result.ok()) {
    if (!counts_.last_error.empty()) {
      LogInfoOf("checkpoints", "checkpoints succeed again");
    }
    sealed_ = taking_id_;
    sealed_at_ = now;
    Keep(taking_id_);
    ++counts_.num_sealed;
    counts_.last_error.clear();
  } else {
    ++counts_.num_failed;
    // Parameters that are not finite fail each one with the same words.
    const bool is_new = counts_.last_error != result.status().message();
    counts_.last_error = std::string(result.status().message());
    if (is_new) {
      LogErrorOf(WithoutNumbers(counts_.last_error),
                 "the checkpoint of version ", taking_id_.version,
                 " has failed, the job goes on: ", counts_.last_error);
    }
  }
  DeferredCalls calls;
  for (Done& done : taking_) {
    if (done != nullptr) {
      calls.Add([done = std::move(done), result] { done(result); });
    }
  }
  taking_.clear();
  return calls;
}

void CheckpointSchedule::Skip(const VersionId& id, absl::Time now) {
  ++counts_.num_skipped;
  skipped_ = true;
  tried_ = id;
  tried_at_ = now;
}

void CheckpointSchedule::Request(Done done) {
  requested_ = true;
  waiting_.push_back(std::move(done));
}

DeferredCalls CheckpointSchedule::Refuse(const absl::Status& reason) {
  DeferredCalls calls;
  requested_ = false;
  for (std::vector<Done>* requests : {&waiting_, &taking_}) {
    for (Done& done : std::exchange(*requests, {})) {
      if (done != nullptr) {
        calls.Add([done = std::move(done), reason] { done(reason); });
      }
    }
  }
  return calls;
}

CheckpointStatus CheckpointSchedule::Status(absl::Time now) const {
  CheckpointStatus status = counts_;
  status.configured = enabled();
  status.writing = busy_;
  status.version = sealed_.version;
  status.made = sealed_.made;
  if (sealed_.made != 0) status.age = now - sealed_at_;
  return status;
}

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

// With second copies a checkpoint is taken as well: all shards may be stopped
// at once, and the first one's stop releases all of them.
Handover::Step Handover::Next(const CheckpointSchedule& checkpoints,
                              const VersionId& id, absl::Time now) const {
  AGG_DCHECK(epoch_ != 0);
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
