// The part of a ShardEngine that is about second copies, apart from its header
// for the reader's sake: functions on an engine, and nothing of their own.
#ifndef AGG_SERVER_SHARD_SHARD_REPLICATION_H_
#define AGG_SERVER_SHARD_SHARD_REPLICATION_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/params/snapshot.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/shard/held_copy.h"
#include "server/shard/shard_compute.h"
#include "server/shard/shard_engine.h"

namespace agg {

class ShardEngine::Replication {
 public:
  // What has the replica that a frame is for. Errors as NeighbourPeer says.
  static absl::StatusOr<std::shared_ptr<ShardCompute>> ReplicaFor(
      ShardEngine* engine, const CopyHeader& header)
      ABSL_LOCKS_EXCLUDED(engine->mutex_);
  // OK while a copy of the version is here, home or replica.
  static absl::Status CheckCopy(ShardEngine* engine, const CopyHeader& header,
                                RecordText* record)
      ABSL_LOCKS_EXCLUDED(engine->mutex_);

  // Tells the replica which epoch's frames to take.
  static void TellReplica(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->mutex_);
  // Takes the replica's step that is due, if one is. A failed one has voided
  // the replica. To be called with the turn; `compute` may be null.
  static absl::Status StepReplica(ShardCompute* compute);
  // Takes that step within a phase, which answers with the error: the epoch is
  // over.
  static absl::Status StepInPhase(ShardEngine* engine, uint64_t epoch,
                                  ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Makes the replica's step due.
  static void ReleaseReplica(ShardEngine* engine, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Does the update where parts have second copies: nothing steps (P17).
  static absl::StatusOr<PhaseResult> Prepare(ShardEngine* engine,
                                             const Phase& phase,
                                             ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Takes the step that was prepared. A failed one voids the home.
  static absl::StatusOr<std::shared_ptr<const Snapshot>> StepHomeArrays(
      ShardEngine* engine, ShardCompute* compute, int32_t* not_finite_slice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_REPLICATION_H_
