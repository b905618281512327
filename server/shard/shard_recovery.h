// The part of a ShardEngine that leads from one epoch to the next, apart from
// its header for the reader's sake: functions on an engine, and nothing of
// their own.
#ifndef AGG_SERVER_SHARD_SHARD_RECOVERY_H_
#define AGG_SERVER_SHARD_SHARD_RECOVERY_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/shard/shard_compute.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_epoch.h"

namespace agg {

class ShardEngine::Recovery {
 public:
  // Whether anything is seeded here.
  static bool HasCopies(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->mutex_);
  // What Attach answers. If the epoch begins, a seeded shard keeps its memory,
  // and any other forgets what it has.
  static absl::StatusOr<ShardInventory> TakeInventory(ShardEngine* engine,
                                                      uint64_t epoch,
                                                      bool begins,
                                                      Former* former)
      ABSL_LOCKS_EXCLUDED(engine->turn_, engine->mutex_);

  // kRecover, kFetch, kOpen. `compute` may be null. *ready: to be run once no
  // lock is held.
  static absl::StatusOr<PhaseResult> Run(ShardEngine* engine,
                                         const Phase& phase,
                                         ShardCompute* compute, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);

 private:
  static absl::StatusOr<PhaseResult> Recover(ShardEngine* engine,
                                             const Phase& phase,
                                             ShardCompute* compute,
                                             Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::StatusOr<PhaseResult> FetchCopies(ShardEngine* engine,
                                                 const Phase& phase,
                                                 ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::StatusOr<PhaseResult> Open(ShardEngine* engine,
                                          const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);

  // A round that was closed, and not updated, takes rows again.
  static void ReopenRound(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  // Forgets all of the job but its facts.
  static Former Forget(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  // Forgets all of the job, since it waits for a Seed, and opens the epoch.
  static void ForgetAll(ShardEngine* engine, const Phase& phase,
                        Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);

  // One function for each CopyAction. `repeated`: an earlier call has been
  // carried out in this epoch.
  static absl::Status RecoverHome(ShardEngine* engine, const Phase& phase,
                                  bool repeated, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status VoidHome(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status KeepHome(ShardEngine* engine, const VersionId& target,
                               ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status StepHome(ShardEngine* engine, const VersionId& target,
                               ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status LoadHome(ShardEngine* engine, const Phase& phase,
                               ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status FetchHome(ShardEngine* engine, const Phase& phase,
                                ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // The arrays are those of `id` now, and loaded_ is their snapshot.
  static void PlaceHome(ShardEngine* engine, const VersionId& id,
                        RecordText record, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_RECOVERY_H_
