// From one epoch to the next: what a ShardEngine keeps, what it reports, and
// what it makes of its copies (P18 to P20).
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/optimizer_step.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/params/parameter_store.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_replica.h"

namespace agg {

// --- Attach ------------------------------------------------------------------

absl::StatusOr<ShardInventory> ShardEngine::Recovery::TakeInventory(
    ShardEngine* engine, uint64_t epoch, bool begins, Former* former) {
  // A phase of the former epoch comes to its end first.
  const TurnLock turn(&engine->turn_);
  MutexLock lock(&engine->mutex_);
  AGG_RETURN_IF_ERROR(
      engine->epoch_.Check(epoch));  // a newer one has come meanwhile
  ShardInventory inventory;
  inventory.member_epoch = engine->member_epoch_;
  if (begins && !HasCopies(engine)) {
    // Rows that were acknowledged are gone, as with another process (P27).
    const bool had_rows = engine->compute_ != nullptr && engine->life_ != 0;
    if (had_rows) ++engine->life_;
    *former = Forget(engine);
    engine->member_epoch_ = epoch;
    engine->epoch_.Open();
  } else if (begins) {
    // What was prepared waits for the decision; all else may take rows again.
    if (!engine->home_.prepared()) ReopenRound(engine);
    if (engine->options_.replicated) engine->compute_->replica()->Hold();
  }
  inventory.life = engine->life_;
  inventory.has_manifest = engine->compute_ != nullptr;
  if (engine->home_.held()) inventory.copies.push_back(engine->home_.state());
  if (engine->compute_ != nullptr && engine->options_.replicated) {
    const HeldCopy replica = engine->compute_->replica()->copy();
    if (replica.held()) inventory.copies.push_back(replica.state());
  }
  inventory.members = engine->sessions_.members();
  inventory.ended_sessions = engine->sessions_.ended();
  inventory.highest_session = engine->sessions_.highest();
  inventory.facts = engine->facts_;
  return inventory;
}

bool ShardEngine::Recovery::HasCopies(ShardEngine* engine) {
  if (engine->home_.held()) return true;
  return engine->compute_ != nullptr && engine->options_.replicated &&
         engine->compute_->replica()->copy().held();
}

void ShardEngine::Recovery::ReopenRound(ShardEngine* engine) {
  engine->round_ = RoundInWork();
  engine->ForgetOffer();
  engine->open_round_->Reopen();
}

ShardEngine::Former ShardEngine::Recovery::Forget(ShardEngine* engine) {
  Former former = engine->DropManifest();
  engine->home_.Void();
  engine->sessions_.Clear();
  // The facts stay: what an operator was told before the first version holds.
  return former;
}

// --- Recover -----------------------------------------------------------------

absl::StatusOr<PhaseResult> ShardEngine::Recovery::Run(ShardEngine* engine,
                                                       const Phase& phase,
                                                       ShardCompute* compute,
                                                       Closures* ready) {
  if (phase.kind == PhaseKind::kFetch) {
    return FetchCopies(engine, phase, compute);
  }
  return phase.kind == PhaseKind::kOpen
             ? Open(engine, phase, ready)
             : Recover(engine, phase, compute, ready);
}

absl::StatusOr<PhaseResult> ShardEngine::Recovery::Recover(
    ShardEngine* engine, const Phase& phase, ShardCompute* compute,
    Closures* ready) {
  bool repeated;
  {
    MutexLock lock(&engine->mutex_);
    repeated = engine->recovered_epoch_ == phase.epoch;
    // The first one was answered, and the answer lost: rounds may have gone on.
    if (repeated && engine->epoch_.open()) return PhaseResult();
    if (phase.recover.unseeded) {
      ForgetAll(engine, phase, ready);
      return PhaseResult();
    }
    if (compute == nullptr) return NoManifest();
    // A shard that had nothing was open: what waits there for a first version
    // is refused from here on.
    engine->epoch_.Close();
    *ready = engine->ResolvePulls();
  }
  absl::Status status = RecoverHome(engine, phase, repeated, compute);
  if (status.ok() && engine->options_.replicated) {
    status = compute->replica()->Recover(phase.recover.replica,
                                         phase.recover.target, repeated);
  }
  if (!status.ok()) return status;
  MutexLock lock(&engine->mutex_);
  engine->recovered_epoch_ = phase.epoch;
  engine->member_epoch_ = phase.epoch;
  engine->facts_ = phase.recover.facts;
  return PhaseResult();
}

void ShardEngine::Recovery::ForgetAll(ShardEngine* engine, const Phase& phase,
                                      Closures* ready) {
  // Its versions and its files end where no lock is held.
  ready->push_back([former = Forget(engine)] {
    if (former.compute != nullptr) former.compute->store()->RevokeAll();
  });
  engine->facts_ = phase.recover.facts;
  engine->recovered_epoch_ = phase.epoch;
  engine->member_epoch_ = phase.epoch;
  engine->epoch_.Open();
  engine->claims_ended_.NotifyAll();
}

absl::Status ShardEngine::Recovery::RecoverHome(ShardEngine* engine,
                                                const Phase& phase,
                                                bool repeated,
                                                ShardCompute* compute) {
  const VersionId& target = phase.recover.target;
  {
    MutexLock lock(&engine->mutex_);
    // A repeat finds what the first one, or a fetch after it, has done.
    if (repeated && engine->home_.At(target) && !engine->home_.prepared()) {
      return absl::OkStatus();
    }
  }
  switch (phase.recover.home) {
    case CopyAction::kVoid:
      return VoidHome(engine);
    case CopyAction::kKeep:
      return KeepHome(engine, target, compute);
    case CopyAction::kStep:
      return StepHome(engine, target, compute);
    case CopyAction::kLoad:
      return LoadHome(engine, phase, compute);
  }
  return absl::InvalidArgumentError("recover.home is no action");
}

absl::Status ShardEngine::Recovery::VoidHome(ShardEngine* engine) {
  MutexLock lock(&engine->mutex_);
  engine->home_.Void();
  // The rows stay: they may be those of the version that is fetched.
  ReopenRound(engine);
  return absl::OkStatus();
}

absl::Status ShardEngine::Recovery::KeepHome(ShardEngine* engine,
                                             const VersionId& target,
                                             ShardCompute* compute) {
  bool published;
  {
    MutexLock lock(&engine->mutex_);
    if (!engine->home_.At(target)) {
      return absl::FailedPreconditionError(
          absl::StrCat(DescribeVersion(target),
                       " cannot be kept: ", engine->home_.Describe()));
    }
    if (engine->home_.prepared() &&
        (engine->round_.closed.updated() != nullptr ||
         engine->round_.waves.next != nullptr)) {
      return absl::FailedPreconditionError(
          absl::StrCat(DescribeVersion(target),
                       " cannot be kept, since the arrays have the next one: ",
                       engine->home_.Describe()));
    }
    engine->home_.Drop();
    ReopenRound(engine);
    published = engine->open_round_->published();
  }
  // A seed that was loaded and not shown.
  if (!published) engine->ShowLoaded(compute);
  return absl::OkStatus();
}

absl::Status ShardEngine::Recovery::StepHome(ShardEngine* engine,
                                             const VersionId& target,
                                             ShardCompute* compute) {
  bool there;
  {
    MutexLock lock(&engine->mutex_);
    there = engine->home_.At(target);
    AGG_RETURN_IF_ERROR(there ? absl::OkStatus()
                              : engine->home_.CheckStep(target));
  }
  return there ? KeepHome(engine, target, compute) : engine->TakeStep(compute);
}

absl::Status ShardEngine::Recovery::LoadHome(ShardEngine* engine,
                                             const Phase& phase,
                                             ShardCompute* compute) {
  AGG_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                       ParseCheckpointManifest(phase.checkpoint));
  const ShardLayout& layout = *compute->layout();
  absl::Status status = CompareManifests(layout.manifest, manifest.tensors);
  auto reader = engine->checkpoints_.Open(manifest);
  if (status.ok()) status = reader.status();
  if (!status.ok()) return status;
  reader->SetProgress(&engine->bytes_progress_);
  // Where a job gives up what it has in memory, all shards have verified their
  // parts before (kVerify).
  {
    MutexLock lock(&engine->mutex_);
    engine->home_.Void();
  }
  // Versions of the abandoned past can have higher numbers.
  compute->store()->RevokeAll();
  AGG_ASSIGN_OR_RETURN(
      std::shared_ptr<const Snapshot> snapshot,
      RestoreArrays(&*reader, layout, engine->options_.optimizer,
                    &engine->backend_, compute->store()));
  // What was not loaded is compared now, so that each byte is read once.
  status = VerifyShare(&*reader, engine->options_.ordinal,
                       engine->options_.num_shards);
  if (!status.ok()) return status;
  LogInfo("loaded the checkpoint of ", DescribeVersion(manifest.id), " as ",
          DescribeVersion(phase.recover.target));
  engine->loaded_ = std::move(snapshot);
  PlaceHome(engine, phase.recover.target,
            std::make_shared<const std::string>(manifest.record), compute);
  return absl::OkStatus();
}

void ShardEngine::Recovery::PlaceHome(ShardEngine* engine, const VersionId& id,
                                      RecordText record,
                                      ShardCompute* compute) {
  engine->round_ = RoundInWork();
  {
    MutexLock lock(&engine->mutex_);
    // Rows of the version's own round count. All others are of a past that was
    // given up, where the same numbers may have named other gradients.
    if (engine->open_round_->published() && engine->home_.id() == id) {
      engine->open_round_->Reopen();
    } else {
      // Nobody may write for two owners: the copies under way end first.
      while (engine->open_round_->landing())
        engine->claims_ended_.Wait(&engine->mutex_);
      engine->open_round_ = std::make_unique<OpenRound>(
          engine->options_, compute->layout(), &engine->sessions_);
    }
    engine->home_.Hold(id, std::move(record));
    engine->ForgetOffer();
  }
  // As before any version (P47); an error is that of a later call, too.
  engine->backend_.AwaitRows().IgnoreError();
  engine->ShowLoaded(compute);
}

// --- Open --------------------------------------------------------------------

absl::StatusOr<PhaseResult> ShardEngine::Recovery::Open(ShardEngine* engine,
                                                        const Phase& phase,
                                                        Closures* ready) {
  MutexLock lock(&engine->mutex_);
  if (engine->epoch_.open()) return PhaseResult();  // a repeat
  std::string copies = engine->home_.Describe();
  bool there = engine->home_.At(phase.id) && !engine->home_.prepared();
  if (engine->options_.replicated && engine->compute_ != nullptr) {
    const HeldCopy replica = engine->compute_->replica()->copy();
    there = there && replica.At(phase.id) && !replica.prepared();
    absl::StrAppend(&copies, "; ", replica.Describe());
  }
  if (engine->recovered_epoch_ != phase.epoch) {
    copies = "nothing was recovered in this epoch";
    there = false;
  }
  if (!there) {
    return absl::InternalError(
        absl::StrCat("open of ", DescribeVersion(phase.id), ": ", copies));
  }
  engine->epoch_.Open();
  engine->open_round_->BeginEpoch();
  engine->DropAllEndedRows();
  engine->WakeFiller();
  *ready = engine->ResolvePulls();
  return PhaseResult();
}

// How copies that are lost come back from the other process that has the part:
// both ends of it (P15).

absl::StatusOr<PhaseResult> ShardEngine::Recovery::FetchCopies(
    ShardEngine* engine, const Phase& phase, ShardCompute* compute) {
  if (!engine->options_.replicated) return PhaseResult();
  if (compute == nullptr) return NoManifest();
  HeldCopy home(engine->options_.ordinal);
  {
    MutexLock lock(&engine->mutex_);
    home = engine->home_;
  }
  ShardReplica* const replica = compute->replica();
  for (const HeldCopy& copy : {home, replica->copy()}) {
    if (copy.held() && !copy.At(phase.id)) {
      return absl::FailedPreconditionError(
          absl::StrCat("fetch of ", DescribeVersion(phase.id),
                       " over a copy: ", copy.Describe()));
    }
  }
  absl::Status status;
  if (!home.held()) status = FetchHome(engine, phase, compute);
  if (status.ok() && !replica->copy().held()) {
    status = replica->Fetch({phase.epoch, replica->layout()->ordinal, phase.id},
                            engine->before_, &engine->bytes_progress_);
  }
  if (!status.ok()) return status;
  return PhaseResult();
}

absl::Status ShardEngine::Recovery::FetchHome(ShardEngine* engine,
                                              const Phase& phase,
                                              ShardCompute* compute) {
  // Versions of an abandoned past can have higher numbers.
  compute->store()->RevokeAll();
  ArrayLoader loader(engine->options_.optimizer, &engine->backend_,
                     compute->store(), compute->layout()->num_elements);
  AGG_RETURN_IF_ERROR(loader.Begin());
  ArrayReceiver receiver(compute->layout().get(),
                         1 + OptimizerStateArrays(engine->options_.optimizer),
                         &loader);
  RecordText record;
  CopySink sink;
  sink.slice = [&](const CopySlice& slice) {
    engine->bytes_progress_.Note();
    return receiver.Take(slice);
  };
  sink.record = [&](std::string text) {
    record = std::make_shared<const std::string>(std::move(text));
    return absl::OkStatus();
  };
  absl::Status status = engine->buddy_->Fetch(
      {phase.epoch, engine->options_.ordinal, phase.id}, sink);
  if (status.ok()) status = receiver.Finish();
  if (!status.ok()) return status;
  engine->loaded_ = loader.snapshot();
  PlaceHome(engine, phase.id, std::move(record), compute);
  return status;
}

}  // namespace agg
