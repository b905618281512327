// From one epoch to the next: what a ShardEngine keeps, what it reports, and
// what it makes of its copies (P18 to P20). Homes alone; replicas are in
// shard_replication.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_json.h"
#include "server/params/parameter_store.h"
#include "server/shard/shard_checkpoint.h"
#include "server/shard/shard_engine.h"

namespace agg {

// --- Promises ----------------------------------------------------------------

absl::StatusOr<uint64_t> ShardEngine::Promise() {
  MutexLock lock(&mutex_);
  return epoch_.promise();
}

absl::StatusOr<ShardInventory> ShardEngine::Attach(
    uint64_t epoch, std::function<void(absl::Status)> on_lost) {
  // Before anything changes: without it an older checkpoint might be taken.
  absl::StatusOr<std::vector<CheckpointState>> checkpoints =
      checkpoints_.List();
  if (!checkpoints.ok()) return checkpoints.status();
  absl::StatusOr<bool> begins = false;
  Closures ready;
  {
    // The promise comes first: what waits for others in a phase of the former
    // epoch ends by it, and gives the turn back.
    MutexLock lock(&mutex_);
    begins = epoch_.Begin(epoch, std::move(on_lost));
    if (!begins.ok()) return begins.status();
    ready = ResolvePulls();
    claims_ended_.NotifyAll();
  }
  for (std::function<void()>& callback : ready) callback();
  Former former;
  absl::StatusOr<ShardInventory> inventory =
      TakeInventory(epoch, *begins, &former);
  if (inventory.ok()) inventory->checkpoints = *std::move(checkpoints);
  // Pulls of versions that are forgotten end, so that their memory is free
  // before the next manifest allocates its own.
  if (former.compute != nullptr) former.compute->store()->RevokeAll();
  return inventory;
}

absl::StatusOr<ShardInventory> ShardEngine::TakeInventory(uint64_t epoch,
                                                          bool begins,
                                                          Former* former) {
  // A phase of the former epoch comes to its end first.
  const TurnLock turn(&turn_);
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(epoch);
  if (!status.ok()) return status;  // a newer one has come meanwhile
  ShardInventory inventory;
  inventory.life = options_.life;
  inventory.member_epoch = member_epoch_;
  const bool seeded = home_.held();
  if (begins && !seeded) {
    *former = Forget();
    member_epoch_ = epoch;
    epoch_.Open();
  }
  // What was updated stays closed: its rows are in the arrays.
  if (begins && seeded && !home_.prepared()) ReopenRound();
  inventory.has_manifest = compute_ != nullptr;
  if (home_.held()) inventory.copies.push_back(home_.state());
  inventory.members = sessions_.members();
  inventory.ended_sessions = sessions_.ended();
  inventory.highest_session = sessions_.highest();
  inventory.facts = facts_;
  return inventory;
}

ShardEngine::Former ShardEngine::Forget() {
  Former former = DropManifest();
  home_.Void();
  sessions_.Clear();
  facts_ = JobFacts();
  return former;
}

void ShardEngine::ReopenRound() {
  closed_round_ = ClosedRound();
  open_round_->Reopen();
}

absl::StatusOr<Manifest> ShardEngine::GetManifest(uint64_t epoch) {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) return NoManifest();
  return compute_->layout()->manifest;
}

absl::Status ShardEngine::SetFacts(uint64_t epoch, const JobFacts& facts) {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.Check(epoch);
  if (status.ok() && facts_ < facts) facts_ = facts;
  return status;
}

std::string ShardEngine::Record() const {
  MutexLock lock(&mutex_);
  return home_.record() == nullptr ? "" : *home_.record();
}

// --- Recover -----------------------------------------------------------------

absl::StatusOr<PhaseResult> ShardEngine::Recover(const Phase& phase,
                                                 ShardCompute* compute,
                                                 Closures* ready) {
  bool repeated;
  {
    MutexLock lock(&mutex_);
    repeated = recovered_epoch_ == phase.epoch;
    // The first one was answered, and the answer lost: rounds may have gone on.
    if (repeated && epoch_.open()) return PhaseResult();
    if (phase.recover.unseeded) {
      ForgetAll(phase, ready);
      return PhaseResult();
    }
    if (compute == nullptr) return NoManifest();
    // A shard that had nothing was open: what waits there for a first version
    // is refused from here on.
    epoch_.Close();
    *ready = ResolvePulls();
  }
  const absl::Status status = RecoverHome(phase, repeated, compute);
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  recovered_epoch_ = phase.epoch;
  member_epoch_ = phase.epoch;
  facts_ = phase.recover.facts;
  return PhaseResult();
}

void ShardEngine::ForgetAll(const Phase& phase, Closures* ready) {
  // Its versions and its files end where no lock is held.
  ready->push_back([former = Forget()] {
    if (former.compute != nullptr) former.compute->store()->RevokeAll();
  });
  facts_ = phase.recover.facts;
  recovered_epoch_ = phase.epoch;
  member_epoch_ = phase.epoch;
  epoch_.Open();
  claims_ended_.NotifyAll();
}

absl::Status ShardEngine::RecoverHome(const Phase& phase, bool repeated,
                                      ShardCompute* compute) {
  const VersionId& target = phase.recover.target;
  {
    MutexLock lock(&mutex_);
    // A repeat finds what the first one, or a fetch after it, has done.
    if (repeated && home_.At(target) && !home_.prepared()) {
      return absl::OkStatus();
    }
  }
  switch (phase.recover.home) {
    case CopyAction::kVoid:
      return VoidHome();
    case CopyAction::kKeep:
      return KeepHome(target, compute);
    case CopyAction::kStep:
      return StepHome(target, compute);
    case CopyAction::kLoad:
      return LoadHome(phase, compute);
  }
  return absl::InvalidArgumentError("recover.home is no action");
}

absl::Status ShardEngine::VoidHome() {
  MutexLock lock(&mutex_);
  home_.Void();
  // The rows stay: they may be those of the version that is fetched.
  ReopenRound();
  return absl::OkStatus();
}

absl::Status ShardEngine::KeepHome(const VersionId& target,
                                   ShardCompute* compute) {
  bool published;
  {
    MutexLock lock(&mutex_);
    if (!home_.At(target)) {
      return absl::FailedPreconditionError(absl::StrCat(
          DescribeVersion(target), " cannot be kept: ", home_.Describe()));
    }
    if (home_.prepared() && closed_round_.updated() != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(DescribeVersion(target),
                       " cannot be kept, since the arrays have the next one: ",
                       home_.Describe()));
    }
    home_.Drop();
    ReopenRound();
    published = open_round_->published();
  }
  // A seed that was loaded and not shown.
  if (!published) ShowLoaded(compute);
  return absl::OkStatus();
}

absl::Status ShardEngine::StepHome(const VersionId& target,
                                   ShardCompute* compute) {
  bool there;
  {
    MutexLock lock(&mutex_);
    there = home_.At(target);
    const absl::Status status =
        there ? absl::OkStatus() : home_.CheckStep(target);
    if (!status.ok()) return status;
  }
  return there ? KeepHome(target, compute) : TakeStep(compute);
}

absl::Status ShardEngine::LoadHome(const Phase& phase, ShardCompute* compute) {
  const absl::StatusOr<CheckpointManifest> manifest =
      ParseCheckpointManifest(phase.checkpoint);
  if (!manifest.ok()) return manifest.status();
  const ShardLayout& layout = *compute->layout();
  absl::Status status = CompareManifests(layout.manifest, manifest->tensors);
  if (!status.ok()) return status;
  absl::StatusOr<CheckpointReader> reader = checkpoints_.Open(*manifest);
  if (!reader.ok()) return reader.status();
  status = VerifyShare(&*reader, options_.ordinal, options_.num_shards);
  if (!status.ok()) return status;
  {
    MutexLock lock(&mutex_);
    home_.Void();
  }
  // Versions of the abandoned past can have higher numbers.
  compute->store()->RevokeAll();
  absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot = RestoreArrays(
      &*reader, layout, options_.optimizer, &backend_, compute->store());
  if (!snapshot.ok()) return snapshot.status();
  LogInfo("loaded the checkpoint of ", DescribeVersion(manifest->id), " as ",
          DescribeVersion(phase.recover.target));
  loaded_ = *std::move(snapshot);
  PlaceHome(phase.recover.target,
            std::make_shared<const std::string>(manifest->record), compute);
  return absl::OkStatus();
}

void ShardEngine::PlaceHome(const VersionId& id, RecordText record,
                            ShardCompute* compute) {
  closed_round_ = ClosedRound();
  {
    MutexLock lock(&mutex_);
    // Rows of the version's own round count. All others are of a past that was
    // given up, where the same numbers may have named other gradients.
    if (open_round_->published() && home_.id() == id) {
      open_round_->Reopen();
    } else {
      // Nobody may write for two owners: the copies under way end first.
      while (open_round_->landing()) claims_ended_.Wait(&mutex_);
      open_round_ =
          std::make_unique<OpenRound>(options_, compute->layout(), &sessions_);
    }
    home_.Hold(id, std::move(record));
  }
  ShowLoaded(compute);
}

void ShardEngine::ShowLoaded(ShardCompute* compute) {
  MutexLock lock(&mutex_);
  const uint64_t version = home_.id().version;
  compute->store()->Publish(version, std::move(loaded_));
  loaded_ = nullptr;
  open_round_->Publish(version);
}

// --- Open --------------------------------------------------------------------

absl::StatusOr<PhaseResult> ShardEngine::Open(const Phase& phase,
                                              Closures* ready) {
  MutexLock lock(&mutex_);
  if (!epoch_.open()) {
    const bool there = home_.At(phase.id) && !home_.prepared();
    if (!there || recovered_epoch_ != phase.epoch) {
      return absl::InternalError(absl::StrCat(
          "open of ", DescribeVersion(phase.id), ": ",
          there ? "nothing was recovered in this epoch" : home_.Describe()));
    }
    epoch_.Open();
    open_round_->ExpectAlive();
    WakeFiller();
    *ready = ResolvePulls();
  }
  return PhaseResult();
}

}  // namespace agg
