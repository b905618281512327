// The phases of a round that is published wave by wave (P43): a part of
// ShardEngine.
#ifndef AGG_SERVER_SHARD_SHARD_WAVES_H_
#define AGG_SERVER_SHARD_SHARD_WAVES_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/round/phase.h"
#include "server/shard/shard_compute.h"
#include "server/shard/shard_engine.h"

namespace agg {

class ShardEngine::Waves {
 public:
  // A phase with a wave: close, compensated_gram and update of each wave in
  // turn, abandon of one that is not updated. The last update is the prepared
  // round, which Publish shows. FAILED_PRECONDITION out of turn, or for a job
  // that is not pipelined, and as ShardEngine::CheckPhase; INVALID_ARGUMENT for
  // a wave or a kind that does not exist. *ready: as ShardEngine::Dispatch.
  static absl::StatusOr<PhaseResult> Run(ShardEngine* engine,
                                         const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);

 private:
  static absl::Status CheckWave(ShardEngine* engine, const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  static absl::StatusOr<PhaseResult> Close(ShardEngine* engine,
                                           const Phase& phase,
                                           ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Freezes the wave's slices, or names the rows that lack some.
  static void MarkClosed(ShardEngine* engine, const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  static absl::StatusOr<PhaseResult> Abandon(ShardEngine* engine,
                                             const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::StatusOr<PhaseResult> Update(ShardEngine* engine,
                                            const Phase& phase,
                                            ShardCompute* compute,
                                            Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Its tensors are in the next version.
  static Closures Show(ShardEngine* engine, int wave)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_WAVES_H_
