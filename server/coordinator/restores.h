// Which checkpoint a job goes on from, and an operator's word on it (P29).
#ifndef AGG_SERVER_COORDINATOR_RESTORES_H_
#define AGG_SERVER_COORDINATOR_RESTORES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/coordinator/recovery_plan.h"
#include "server/coordinator/task_context.h"
#include "server/round/recovery.h"

namespace agg {

// Calls of operators come from any thread; the rest is the loop's.
class Restores {
 public:
  // How long an order waits for all shards.
  static constexpr absl::Duration kOrderTimeout = KeptAnswers::kTimeout;

  // The context outlives it.
  explicit Restores(TaskContext* context) : context_(context) {}

  // --- Calls of operators, as Coordinator has them.
  static absl::StatusOr<RestoreCall> ParseRestore(const std::string& text);
  void Restore(const RestoreCall& call,
               std::function<void(absl::StatusOr<RestoreResult>)> done);
  void Resume(std::function<void(absl::StatusOr<ResumeResult>)> done);
  absl::StatusOr<ResumeResult> MayResume() const;
  // Drops an order that has waited for too long.
  void ExpireOrder();
  // Answers the order, if there is one: what was done, in words, or why not.
  void EndOrder(const absl::StatusOr<std::string>& result);

  // --- Steps of a recovery, in their order. Notes what the shards see.
  void See(const std::vector<ShardInventory>& inventories);
  // Decides by the order or, without one, by the configuration. REQUIRES: See.
  RecoveryDecision Decide(uint64_t epoch,
                          const std::vector<ShardInventory>& inventories);
  // Returns the error with which a recovery waits for a person, before it has
  // done anything.
  absl::Status AwaitPerson(const std::string& what);
  bool awaits_person() const { return awaits_person_; }  // since See
  // Says what becomes of the checkpoints; has the folders say that the job
  // begins anew by an operator's word. Before anything is done.
  absl::Status Begin(uint64_t epoch, const RecoveryDecision& decision);
  // Whether an operator has said what the recovery does.
  bool by_order() const { return by_order_; }
  // Whether what it loads is another job's.
  bool borrows() const { return borrows_; }
  // Whether a finished job is to go on.
  bool Resumes() const;
  // Reads a checkpoint's manifest: its text, and what that says.
  absl::StatusOr<std::string> ReadCheckpoint(uint64_t epoch,
                                             const VersionId& id,
                                             CheckpointManifest* manifest);
  // Returns an error of loading: the job waits for a person, unless a shard was
  // lost.
  absl::Status Refused(const VersionId& id, const absl::Status& status);
  // Notes that the checkpoint could be loaded.
  void NoteLoaded(const VersionId& id) { refused_.erase(id); }
  // Has all shards seal a checkpoint, and remove nothing.
  absl::Status Seal(uint64_t epoch, const std::string& checkpoint);
  // An epoch has begun with the order: what remains is that a checkpoint has
  // it. `text`: what was done.
  void CompleteOrder(const std::string& text);

  // Whether some shard saw a sealed checkpoint of the job.
  bool SeesSealed() const;

 private:
  // What an operator has asked for, until it is carried out.
  struct Order {
    enum class Kind : uint8_t { kCheckpoint, kBeginAnew, kResume };
    Kind kind = Kind::kCheckpoint;
    RestoreCall restore;
    ResumeResult resume;
    // Called when the order is done, with what was done, in words.
    std::function<void(absl::StatusOr<std::string>)> done;
    absl::Time until;          // dropped then, unless it is taken
    bool taken = false;        // a recovery decides or goes by it
    bool carried_out = false;  // an epoch has begun with it
  };
  // UNAVAILABLE while the coordinator stops; or another order is under way.
  absl::Status CheckMayOrder() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  absl::Status GiveOrder(Order order, const absl::Status& why);
  // Takes the order that waits. Returns it if it is about checkpoints;
  // *carried_out: an epoch has begun with it, and no checkpoint has it yet.
  std::optional<RestoreCall> TakeOrder(bool* carried_out);
  // The last checkpoint of a job that goes on says so.
  absl::Status SealFacts();
  // Choose and ChooseOf find what may be loaded of what the shards see.
  CheckpointChoice Choose(const std::optional<RestoreCall>& order);
  CheckpointChoice ChooseOf(std::vector<CheckpointListing> listings);
  bool HasSaved() const;
  void DropRetired(std::vector<FoundCheckpoint>* found) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  RestoreResult Found() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  absl::StatusOr<RestoreResult> Foresee(const RestoreCall& call,
                                        RestoreResult found) const;
  absl::Status KeepBeginning(uint64_t epoch);
  void NoteBeginning(uint64_t epoch, const RecoveryDecision& decision);
  absl::Status Awaiting(const std::string& what);
  std::string Remedies() const;

  TaskContext* const context_;
  std::optional<Order> order_ ABSL_GUARDED_BY(context_->mutex);
  // Checkpoints that the shards have listed when all were attached last, by
  // ordinal: of the job, and of the one that restore_job names.
  std::vector<CheckpointListing> seen_ ABSL_GUARDED_BY(context_->mutex);
  std::vector<CheckpointListing> seen_of_other_
      ABSL_GUARDED_BY(context_->mutex);

  // The loop's: what came of trying to load them.
  struct Refusal {
    std::string why;
    absl::Time until;  // it is not tried again before
  };
  std::map<VersionId, Refusal> refused_;
  bool awaits_person_ = false;
  bool borrows_ = false;
  bool by_order_ = false;
  // Checkpoints that were made before this epoch do not count: an operator's
  // order or the configuration has said that the job begins anew.
  std::optional<uint64_t> begun_anew_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RESTORES_H_
