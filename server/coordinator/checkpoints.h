// Checkpoints (P30), and shards that are stopped in good order, which wait for
// one (P35).
#ifndef AGG_SERVER_COORDINATOR_CHECKPOINTS_H_
#define AGG_SERVER_COORDINATOR_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/task_context.h"
#include "server/round/shard_peer.h"

namespace agg {

// A checkpoint whose arrays are copied: waits for the shards' files, and seals
// it. Apart from the coordinator's loop, since disks may be slow and rounds go
// on.
//
// Used by one thread at a time, which may wait for disks.
class CheckpointTask {
 public:
  // `manifest` lacks its parts. `peers` outlives it. `keep`, `line`: as
  // CheckpointFolder::Retire has them. `captured`: why the arrays are not
  // copied on all shards; then all that is done is to remove what some have.
  CheckpointTask(PeerGroup* peers, uint64_t epoch, CheckpointManifest manifest,
                 int keep, uint64_t line,
                 absl::Status captured = absl::OkStatus());

  // Asks all shards how far they are, and seals the checkpoint when all parts
  // are written. Nothing: ask again. Then the result, once: an error of the
  // first shard whose part has failed, with its name.
  std::optional<absl::StatusOr<TakenCheckpoint>> Look();

 private:
  absl::Status Seal();
  // It is not sealed on any shard: their parts go, as far as they can be
  // reached.
  void Discard();

  PeerGroup* const peers_;
  const uint64_t epoch_;
  CheckpointManifest manifest_;
  const int keep_;
  const uint64_t line_;
  const absl::Status captured_;
};

// Takes checkpoints. RunIfDue is the loop's; Watch is its own thread's, as Look
// is, which a coordinator without threads calls; the others may be called from
// any thread.
class Checkpoints {
 public:
  // The context outlives it, and so do `shards`, which its thread uses.
  Checkpoints(TaskContext* context, std::vector<ShardPeer*> shards,
              const PeerGroup::Order& order)
      : context_(context), peers_(std::move(shards), order) {}

  // Takes a call as Coordinator::TakeCheckpoint has it.
  void Take(std::function<void(absl::StatusOr<TakenCheckpoint>)> done);
  // Begins a checkpoint. Returns whether it did anything.
  bool RunIfDue();
  // Looks at the one that is under way. Returns whether it has ended.
  bool Look();
  // Looks again and again, until the coordinator stops.
  void Watch();
  // Has Watch see that the coordinator stops.
  void Wake() { begun_.NotifyAll(); }
  // Waits until the open version has a checkpoint, so that nothing is lost by a
  // stop in good order, whichever shards go with it. `deadline`: real time.
  void AwaitLast(absl::Time deadline);

 private:
  // Whether one begins now; then *manifest lacks what the loop alone knows.
  bool Begin(uint64_t* epoch, JobRecord* record, CheckpointManifest* manifest);
  absl::Status CheckFinite() const;
  void End(const absl::StatusOr<TakenCheckpoint>& result);

  TaskContext* const context_;
  PeerGroup peers_;  // used by the thread that looks
  CondVar begun_;
  std::unique_ptr<CheckpointTask> task_ ABSL_GUARDED_BY(context_->mutex);
};

// Lets go of shards that are stopped in good order. The loop sees them between
// two rounds, so that a round in execution is finished first; then rounds stand
// still until a checkpoint has exactly this version, and the epoch ends.
class HandoverTask {
 public:
  // The context outlives it.
  explicit HandoverTask(TaskContext* context) : context_(context) {}

  // Returns whether it did anything.
  bool RunIfDue();

 private:
  TaskContext* const context_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CHECKPOINTS_H_
