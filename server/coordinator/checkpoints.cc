// Checkpoints: the arrays are copied between two rounds, by the loop; the rest
// is done beside the rounds, by a thread of its own. What goes wrong fails the
// checkpoint and nothing else.
#include "server/coordinator/checkpoints.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/optimizer_table.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/job_state.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

// --- One checkpoint ---------------------------------------------------------

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
        AGG_ASSIGN_OR_RETURN(
            PhaseResult result,
            peer->RunPhase(PhaseOf(PhaseKind::kCheckpointProgress, epoch_)));
        shards[ordinal] = std::move(result.checkpoint);
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

// The manifest travels as text, so that each folder gets the same bytes.
absl::Status CheckpointTask::Seal() {
  Phase phase = PhaseOf(PhaseKind::kSeal, epoch_);
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
  Phase phase = PhaseOf(PhaseKind::kSeal, epoch_);
  phase.id = manifest_.id;
  peers_
      ->ForEach(
          [&](int, ShardPeer* peer) { return peer->RunPhase(phase).status(); })
      .IgnoreError();
}

// --- Checkpoints ------------------------------------------------------------

void Checkpoints::Take(
    std::function<void(absl::StatusOr<TakenCheckpoint>)> done) {
  TellingLock lock(&context_->mutex);
  absl::Status status = context_->state.CheckAcceptingCalls();
  if (!context_->options.checkpoint.enabled) {
    status = absl::FailedPreconditionError(
        "checkpoint.path is not configured: no checkpoints are taken");
  } else if (status.ok() && !context_->state.job()->seeded()) {
    status = absl::FailedPreconditionError(
        "no version is published yet, so there is nothing to keep");
  } else if (status.ok() && !context_->state.checkpoints()->has_room()) {
    status = absl::ResourceExhaustedError(
        absl::StrCat(CheckpointSchedule::kMaxWaiting,
                     " calls wait for a checkpoint already"));
  }
  if (!status.ok()) return lock.Tell([done, status] { done(status); });
  context_->state.checkpoints()->Request(std::move(done));
  context_->changed.NotifyAll();
}

void Checkpoints::AwaitLast(absl::Time deadline) {
  MutexLock lock(&context_->mutex);
  CoordinatorState& state = context_->state;
  CheckpointSchedule* const schedule = state.checkpoints();
  if (!context_->options.checkpoint.enabled || !state.epoch_on() ||
      !state.job()->seeded() || absl::Now() >= deadline) {
    return;
  }
  if (!schedule->Has(state.job()->id())) schedule->Request(nullptr);
  context_->changed.NotifyAll();
  while ((schedule->requested() || schedule->busy()) && state.epoch_on() &&
         absl::Now() < deadline) {
    context_->changed.WaitFor(&context_->mutex, deadline - absl::Now());
  }
}

// --- The loop's half --------------------------------------------------------

bool Checkpoints::Begin(uint64_t* epoch, JobRecord* record,
                        CheckpointManifest* manifest) {
  MutexLock lock(&context_->mutex);
  if (!context_->state.epoch_on() || !context_->state.job()->seeded())
    return false;
  const JobState& job = *context_->state.job();
  const absl::Time now = context_->clock->Now();
  CheckpointSchedule* const schedule = context_->state.checkpoints();
  if (!schedule->Due(job.id(), job.finished(), now)) return false;
  if (schedule->busy()) {
    schedule->Skip(job.id(), now);
    return false;
  }
  schedule->Start(job.id(), now);
  *epoch = job.epoch();
  manifest->id = job.id();
  manifest->history = job.history();
  manifest->tensors = **job.manifest();
  for (const auto& [rank, member] : job.members()) {
    manifest->members.push_back({rank, member.session, member.first_round,
                                 member.client, member.identity});
  }
  manifest->facts = FactsText(context_->state.facts());
  job.FillRecord(record);
  return true;
}

// Such a version is worth nothing, and would push out one that is. The shards
// look at what they write, too, since an epoch may begin with one.
absl::Status Checkpoints::CheckFinite() const {
  MutexLock lock(&context_->mutex);
  const std::string found = context_->state.NotFiniteText();
  if (found.empty()) return absl::OkStatus();
  const std::optional<VersionId> newest =
      context_->state.checkpoints()->newest();
  return absl::FailedPreconditionError(absl::StrCat(
      found, ", so that none is taken of them",
      newest.has_value()
          ? absl::StrCat("; `aggctl restore ", CheckpointFolderName(*newest),
                         "` goes back to version ", newest->version)
          : ""));
}

bool Checkpoints::RunIfDue() {
  CheckpointManifest manifest;
  JobRecord record;
  uint64_t epoch = 0;
  if (!Begin(&epoch, &record, &manifest)) return false;
  absl::Status status = CheckFinite();
  if (!status.ok()) {
    End(status);
    return true;
  }
  Phase capture = PhaseOf(PhaseKind::kCapture, epoch);
  capture.id = manifest.id;
  status = context_->RunPhase(capture);
  if (status.ok()) {
    context_->engine.FillRecord(&record);
    record.state.shadow_rules = context_->reporter.ShadowRules();
    manifest.record = context_->TextOf(std::move(record));
  }
  manifest.job = context_->options.job;
  manifest.num_shards = context_->peers.size();
  manifest.optimizer = LineOf(context_->options.optimizer.kind).name;
  manifest.num_state_arrays = OptimizerStateArrays(context_->options.optimizer);
  manifest.config = context_->options.checkpoint.config_text;
  MutexLock lock(&context_->mutex);
  // Also where it has failed: the parts that some shards have are removed
  // beside the rounds, since their disks may hang.
  task_ = std::make_unique<CheckpointTask>(
      &peers_, epoch, std::move(manifest), context_->options.checkpoint.keep,
      context_->state.job()->line(), std::move(status));
  begun_.NotifyAll();
  return true;
}

// --- The half beside the rounds ---------------------------------------------

bool Checkpoints::Look() {
  CheckpointTask* task = nullptr;
  {
    MutexLock lock(&context_->mutex);
    task = task_.get();
  }
  if (task == nullptr) return false;
  // Nobody else ends it, so that it lives as long as this call.
  const auto result = task->Look();
  if (!result.has_value()) return false;
  {
    MutexLock lock(&context_->mutex);
    task_ = nullptr;
  }
  End(*result);
  return true;
}

void Checkpoints::End(const absl::StatusOr<TakenCheckpoint>& result) {
  TellingLock lock(&context_->mutex);
  lock.Tell(context_->state.checkpoints()->End(result, context_->clock->Now()));
  context_->changed.NotifyAll();
}

void Checkpoints::Watch() {
  constexpr absl::Duration kInterval = absl::Milliseconds(50);
  for (;;) {
    {
      MutexLock lock(&context_->mutex);
      while (!context_->stop && task_ == nullptr) {
        begun_.Wait(&context_->mutex);
      }
      if (context_->stop) return;
    }
    if (Look()) continue;
    MutexLock lock(&context_->mutex);
    if (!context_->stop) begun_.WaitFor(&context_->mutex, kInterval);
  }
}

// --- Shards that are let go -------------------------------------------------

bool HandoverTask::RunIfDue() {
  uint64_t epoch = 0;
  std::set<int> shards;
  {
    MutexLock lock(&context_->mutex);
    CoordinatorState& state = context_->state;
    const absl::Time now = context_->clock->Now();
    const Handover::Step step = state.NextHandover(now);
    if (step == Handover::Step::kNone) return false;
    state.handover()->StandStill(now);
    if (step == Handover::Step::kTakeCheckpoint) {
      state.handover()->NoteRequest();
      state.checkpoints()->Request(nullptr);
      return true;
    }
    if (step != Handover::Step::kLetGo) return false;
    const JobState& job = *state.job();
    epoch = job.epoch();
    shards = state.handover()->Take();
    if (context_->options.checkpoint.enabled && job.seeded() &&
        !state.checkpoints()->Has(job.id())) {
      LogWarning("version ", job.version(), " has no checkpoint, yet ",
                 "shards that are being stopped are let go");
    }
  }
  std::vector<std::string> names;
  for (const int shard : shards)
    names.push_back(context_->peers.peer(shard)->name());
  const absl::Status reason = OrderlyStop(
      absl::StrCat(absl::StrJoin(names, ", "),
                   names.size() == 1 ? " is" : " are", " shutting down"));
  context_->LoseEpoch(epoch, reason);
  context_->PropagateLoss();
  // A finished job may keep its epoch: those who wait are let go alone.
  for (const int shard : shards)
    context_->peers.peer(shard)->Lose(epoch, reason);
  return true;
}

}  // namespace agg
