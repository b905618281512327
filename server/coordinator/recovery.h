// Beginnings of epochs (P14, P20, P21), and what a job goes on from (P18, P19).
#ifndef AGG_SERVER_COORDINATOR_RECOVERY_H_
#define AGG_SERVER_COORDINATOR_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/recovery_plan.h"
#include "server/coordinator/restores.h"
#include "server/coordinator/task_context.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"

namespace agg {

// CheckAddress may be called from any thread; the rest is the loop's.
class Recovery {
 public:
  // Text that names another coordinator of the job, or "" if there is none.
  using FindOther = std::function<std::string()>;

  // The first two outlive it. `find_other` (null: there is never one) may
  // block.
  Recovery(TaskContext* context, Restores* restores,
           std::shared_ptr<ShardEvents> shard_events, FindOther find_other)
      : context_(context),
        restores_(restores),
        shard_events_(std::move(shard_events)),
        find_other_(std::move(find_other)) {}

  // Sets what hears of it, as Coordinator has them.
  void SetOnRestored(std::function<void(const VersionId&)> callback) {
    on_restored_ = std::move(callback);
  }
  void SetOnSuperseded(std::function<void(const absl::Status&)> callback) {
    on_superseded_ = std::move(callback);
  }

  // Attaches the shards to the next epoch if it is time to, and begins it.
  // Returns whether it did anything.
  bool RunIfDue();
  // Ends this coordinator if another life of it answers at its address (P21).
  void CheckAddress();

 private:
  // One epoch that may begin.
  struct Attempt {
    uint64_t epoch = 0;
    std::vector<ShardInventory> inventories;  // by ordinal
    RecoveryDecision decision;
    // The checkpoint's, with decision.checkpoint, and its text.
    CheckpointManifest manifest;
    std::string manifest_text;
    std::optional<JobStart> start;  // nothing: the job is not seeded
  };

  // --- One coordinator alone.
  // Whether another coordinator has the job, so that this one is a standby.
  bool StandsBy();
  // Another life of the coordinator answers at this one's address.
  void Supersede(const std::string& other);
  // Returns the number of the next epoch: `epoch`, or above all promises.
  uint64_t AbovePromises(uint64_t epoch);
  absl::Status AttachAll(Attempt* attempt);
  void BeginEpoch(Attempt attempt);

  // --- Brings all copies to one version, and attempt->start to what goes on
  // there. Its steps are below, in their order.
  absl::Status Recover(Attempt* attempt);
  void Note(const std::string& what);
  // Reads the manifest, and sees to it that all shards' parts are whole before
  // a copy is given up for them. Errors name shard and file.
  absl::Status LoadCheckpoint(Attempt* attempt) const;
  // Puts the facts that hold into all plans.
  absl::Status TakeFacts(Attempt* attempt) const;
  absl::Status GiveManifest(Attempt* attempt);
  absl::Status RunRecover(const Attempt& attempt);
  // Runs a phase that is about the decision's target.
  absl::Status RunAt(PhaseKind kind, const Attempt& attempt);
  absl::Status FillStart(Attempt* attempt);
  absl::Status FillRecord(Attempt* attempt);
  bool GoOnFromMemory(Attempt* attempt);
  absl::Status GiveSessions(const Attempt& attempt);
  void SealAgain(const Attempt& attempt);

  TaskContext* const context_;
  Restores* const restores_;
  const std::shared_ptr<ShardEvents> shard_events_;  // peers hold it, too
  const FindOther find_other_;
  std::function<void(const VersionId&)> on_restored_;  // may be null
  std::function<void(const absl::Status&)> on_superseded_;
  bool superseded_ ABSL_GUARDED_BY(context_->mutex) = false;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RECOVERY_H_
