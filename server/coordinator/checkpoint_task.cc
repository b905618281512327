// The manifest travels as text, so that each folder gets the same bytes.
#include "server/coordinator/checkpoint_task.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_json.h"
#include "server/checkpoint/checkpoint_limits.h"
#include "server/checkpoint/checkpoint_progress.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

CheckpointTask::CheckpointTask(PeerGroup* peers, uint64_t epoch,
                               CheckpointManifest manifest, int keep,
                               uint64_t line, absl::Status captured)
    : peers_(peers),
      epoch_(epoch),
      manifest_(std::move(manifest)),
      keep_(keep),
      line_(line),
      captured_(std::move(captured)) {}

std::optional<absl::StatusOr<TakenCheckpoint>> CheckpointTask::Look() {
  using Stage = CheckpointProgress::Stage;
  if (!captured_.ok()) {
    Discard();
    return captured_;
  }
  std::vector<CheckpointProgress> shards(peers_->size());
  absl::Status status =
      peers_->ForEach([&](int ordinal, ShardPeer* peer) -> absl::Status {
        Phase phase;
        phase.kind = PhaseKind::kCheckpointProgress;
        phase.epoch = epoch_;
        absl::StatusOr<PhaseResult> result = peer->RunPhase(phase);
        if (!result.ok()) return result.status();
        shards[ordinal] = std::move(result->checkpoint);
        if (shards[ordinal].stage == Stage::kFailed) {
          return shards[ordinal].error;
        }
        // Another capture has come between: a former epoch's coordinator.
        const bool ours = shards[ordinal].id == manifest_.id;
        return ours ? absl::OkStatus()
                    : absl::AbortedError("it writes another checkpoint");
      });
  if (!status.ok()) {
    Discard();
    return status;
  }
  TakenCheckpoint taken;
  taken.version = manifest_.id.version;
  taken.made = manifest_.id.made;
  manifest_.parts.clear();
  for (const CheckpointProgress& shard : shards) {
    if (shard.stage != Stage::kWritten) return std::nullopt;
    manifest_.parts.push_back(shard.part);
    taken.num_bytes += shard.part.num_bytes;
  }
  status = Seal();
  if (!status.ok()) return status;
  return taken;
}

absl::Status CheckpointTask::Seal() {
  Phase phase;
  phase.kind = PhaseKind::kSeal;
  phase.epoch = epoch_;
  phase.checkpoint = CheckpointManifestJson(manifest_);
  const int64_t num_bytes = static_cast<int64_t>(phase.checkpoint.size());
  if (num_bytes > kMaxManifestBytes) {  // nobody would read it
    return absl::ResourceExhaustedError(
        absl::StrCat("its manifest has ", num_bytes,
                     " bytes; allowed: ", kMaxManifestBytes, " at most"));
  }
  phase.keep = keep_;
  phase.line = line_;
  return peers_->ForEach(
      [&](int, ShardPeer* peer) { return peer->RunPhase(phase).status(); });
}

void CheckpointTask::Discard() {
  Phase phase;
  phase.kind = PhaseKind::kSeal;
  phase.epoch = epoch_;
  phase.id = manifest_.id;
  peers_
      ->ForEach(
          [&](int, ShardPeer* peer) { return peer->RunPhase(phase).status(); })
      .IgnoreError();
}

}  // namespace agg
