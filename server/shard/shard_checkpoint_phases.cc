// Checkpoints of a shard, as the coordinator asks for them (P30): a copy
// between two rounds, how far its file is, the manifest.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_engine.h"

namespace agg {

absl::Status ShardEngine::SetCheckpointFolder(
    CheckpointFolder folder, FileSystem* files,
    absl::optional<CheckpointFolder> other) {
  options_.checkpoints = true;
  checkpoints_.SetFolder(std::move(folder), files, std::move(other));
  const CheckpointListing listing = checkpoints_.List();
  MutexLock lock(&mutex_);
  NoteMade(listing, /*epoch=*/0);
  return listing.error.empty() ? absl::OkStatus()
                               : absl::UnavailableError(listing.error);
}

void ShardEngine::NoteMade(const CheckpointListing& checkpoints,
                           uint64_t epoch) {
  const auto promise = [&](uint64_t made) {
    if (made != epoch || epoch_.number() != epoch) epoch_.PromiseAtLeast(made);
  };
  for (const CheckpointState& state : checkpoints.states) {
    promise(state.id.made);
  }
  // Else what the job saves next would be older than that.
  promise(checkpoints.begun_anew);
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
  const auto copy = CopyFrom(&backend_, compute->store());
  const absl::Status status =
      checkpoints_.Capture(phase.id, [&](int array, absl::Span<float> to) {
        bytes_progress_.Note();
        return copy(array, to);
      });
  if (!status.ok()) return status;
  return PhaseResult();
}

absl::StatusOr<PhaseResult> ShardEngine::RunCheckpointPhase(
    const Phase& phase) {
  absl::Status status = CheckEpoch(phase.epoch);
  PhaseResult result;
  if (status.ok() && phase.kind == PhaseKind::kSeal) {
    if (phase.begins_anew) {
      status = checkpoints_.BeginAnew(phase.line);
    } else if (phase.checkpoint.empty()) {
      status = checkpoints_.Discard(phase.id);
    } else {
      status = checkpoints_.Seal(phase.checkpoint, phase.keep, phase.line);
    }
  }
  if (status.ok() && phase.kind == PhaseKind::kReadManifest) {
    absl::StatusOr<std::string> manifest = checkpoints_.ReadManifest(phase.id);
    status = manifest.status();
    if (status.ok()) result.manifest = *std::move(manifest);
  }
  if (status.ok() && phase.kind == PhaseKind::kVerify) {
    status = checkpoints_.Verify(phase.checkpoint, options_.ordinal,
                                 options_.num_shards, &bytes_progress_);
  }
  if (!status.ok()) return status;
  result.checkpoint = checkpoints_.progress();
  return result;
}

}  // namespace agg
