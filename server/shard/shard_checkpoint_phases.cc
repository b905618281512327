// Checkpoints of a shard, as the coordinator asks for them (P30): a copy
// between two rounds, how far its file is, the manifest.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_engine.h"

namespace agg {

absl::Status ShardEngine::SetCheckpointFolder(CheckpointFolder folder,
                                              FileSystem* files) {
  const absl::StatusOr<std::vector<CheckpointState>> states = folder.List();
  if (!states.ok()) return states.status();
  options_.checkpoints = true;
  checkpoints_.SetFolder(std::move(folder), files);
  MutexLock lock(&mutex_);
  // This process has no memory of them, but they have been (P20).
  for (const CheckpointState& state : *states) {
    epoch_.PromiseAtLeast(state.id.made);
  }
  return absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::Capture(const Phase& phase,
                                                 ShardCompute* compute) {
  {
    MutexLock lock(&mutex_);
    if (!home_.At(phase.id) || home_.prepared()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no checkpoint of ", DescribeVersion(phase.id), ": ",
                       home_.Describe()));
    }
  }
  const absl::Status status =
      checkpoints_.Capture(phase.id, CopyFrom(&backend_, compute->store()));
  if (!status.ok()) return status;
  return PhaseResult();
}

absl::StatusOr<PhaseResult> ShardEngine::RunCheckpointPhase(
    const Phase& phase) {
  absl::Status status = CheckEpoch(phase.epoch);
  PhaseResult result;
  if (status.ok() && phase.kind == PhaseKind::kSeal) {
    status = checkpoints_.Seal(phase.checkpoint, phase.keep);
  }
  if (status.ok() && phase.kind == PhaseKind::kReadManifest) {
    absl::StatusOr<std::string> manifest = checkpoints_.ReadManifest(phase.id);
    status = manifest.status();
    if (status.ok()) result.manifest = *std::move(manifest);
  }
  if (!status.ok()) return status;
  result.checkpoint = checkpoints_.progress();
  return result;
}

}  // namespace agg
