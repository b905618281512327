// A checkpoint whose arrays are copied: waits for the shards' files, and seals
// it. Apart from the coordinator's loop, since disks may be slow and rounds go
// on (P30).
#ifndef AGG_SERVER_COORDINATOR_CHECKPOINT_TASK_H_
#define AGG_SERVER_COORDINATOR_CHECKPOINT_TASK_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/peer_group.h"
#include "server/round/recovery.h"

namespace agg {

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

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CHECKPOINT_TASK_H_
