// From one version to the next: the seed, a round's update, and publishing. The
// phases before, which decide what the update is, are in shard_phases.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/params/parameter_store.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_replication.h"

namespace agg {

absl::StatusOr<PhaseResult> ShardEngine::Update(const Phase& phase,
                                                ShardCompute* compute) {
  if (options_.replicated) return Replication::Prepare(this, phase, compute);
  absl::Status status;
  unchanged_ = phase.publish.unchanged;
  if (!unchanged_) {
    int num_revoked = 0;
    status = closed_round_.TakeMemory(compute, &num_revoked);
    MutexLock lock(&mutex_);
    totals_.revoked_snapshots += num_revoked;
    if (!status.ok()) return status;  // the arrays are as they were
  }
  {
    MutexLock lock(&mutex_);
    // From here on the arrays may be between two versions (P18).
    if (!home_.whole()) home_.BeginPrepare(phase.epoch);
  }
  if (!unchanged_) status = closed_round_.Update(compute, phase.step);
  MutexLock lock(&mutex_);
  if (status.ok()) {
    home_.EndPrepare(phase.record);
    PhaseResult result;
    result.not_finite_slice = closed_round_.not_finite_slice();
    if (!unchanged_) result.narrowing = compute->narrowing();
    return result;
  }
  // Master weights may hold a part of the step: this epoch cannot go on (P15).
  home_.Void();
  BreakEpoch(phase.epoch, "an update", status);
  return status;
}

bool ShardEngine::HasPublished(const Phase& update) const {
  return update.publishes && open_round_->published() &&
         open_round_->version() == update.publish.version;
}

absl::StatusOr<PhaseResult> ShardEngine::RunUpdate(const Phase& phase,
                                                   ShardCompute* compute,
                                                   Closures* ready) {
  // The second copy is prepared before anybody steps (P17).
  if (!phase.publishes || options_.replicated) return Update(phase, compute);
  const bool repeated = [&] {
    MutexLock lock(&mutex_);
    return HasPublished(phase);
  }();
  if (!repeated) {
    const absl::Status status = Update(phase, compute).status();
    if (!status.ok()) return status;
  }
  absl::StatusOr<PhaseResult> result = Publish(phase, compute, ready);
  if (result.ok()) result->published = true;
  return result;
}

void ShardEngine::BreakEpoch(uint64_t epoch, const char* where,
                             const absl::Status& status) {
  if (epoch_.number() != epoch) return;  // it is over anyway
  epoch_.Break(absl::UnavailableError(absl::StrCat("shard ", options_.ordinal,
                                                   " failed within ", where,
                                                   ": ", status.message())));
  Replication::TellReplica(this);
}

absl::StatusOr<PhaseResult> ShardEngine::LoadSeed(const Phase& phase,
                                                  ShardCompute* compute) {
  const PublishPlan& plan = phase.publish;
  const VersionId id{phase.epoch, 0};
  std::shared_ptr<Snapshot> seed;
  {
    MutexLock lock(&mutex_);
    if (home_.At(id)) return PhaseResult();  // a repeat
    // A late copy of an earlier call: it would write over the parameters.
    if (open_round_->published()) {
      return absl::FailedPreconditionError("load_seed: the job is seeded");
    }
    if (!open_round_->SeedComplete(plan.seed_session, plan.seed_attempt)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the seed of session ", plan.seed_session, ", attempt ",
                       plan.seed_attempt, ", is not complete"));
    }
    const absl::Status taken = compute->TakeSeed();
    if (!taken.ok()) return taken;
    seed = compute->seed();
    // From here on the buffer is read, and then it is a version: a higher
    // attempt comes too late.
    open_round_->Close();
  }
  const absl::Status status = compute->LoadSeed(seed.get());
  MutexLock lock(&mutex_);
  if (!status.ok()) {
    open_round_->Reopen();
    return status;  // the seed stays, for a repeat
  }
  compute->ReleaseSeed();
  loaded_ = std::move(seed);
  home_.Hold(id, phase.record);
  return PhaseResult();
}

absl::Status ShardEngine::CheckPublish(const Phase& phase, bool* repeated,
                                       bool* prepared) const {
  const PublishPlan& plan = phase.publish;
  MutexLock lock(&mutex_);
  *prepared = home_.whole();
  const bool published = open_round_->published();
  *repeated = published && open_round_->version() == plan.version;
  if (*repeated) return absl::OkStatus();
  if (plan.seed ? published || plan.version != 0
                : plan.version != phase.round + 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "publish of version ", plan.version, " in round ", phase.round,
        "; current version ", open_round_->version()));
  }
  // A skipped round changes nothing that a second copy has to know before.
  const bool may_be_unprepared = plan.unchanged && !options_.replicated;
  if (!plan.seed && !may_be_unprepared && !*prepared) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", phase.round, " has not been updated"));
  }
  return options_.replicated ? compute_->replica()->CheckPrepared(plan.version)
                             : absl::OkStatus();
}

void ShardEngine::AwaitLandings() {
  MutexLock lock(&mutex_);
  open_round_->Close();
  while (open_round_->landing()) claims_ended_.Wait(&mutex_);
}

absl::Status ShardEngine::TakeStep(ShardCompute* compute) {
  // From the next version on a worker may write its row on the device (P47):
  // nothing that lands on the host may come behind.
  AwaitLandings();
  const absl::Status awaited = backend_.AwaitRows();
  if (!awaited.ok()) return awaited;
  const uint64_t version = [&] {
    MutexLock lock(&mutex_);
    return home_.id().version;
  }();
  ParameterStore* const store = compute->store();
  int32_t not_finite_slice = closed_round_.not_finite_slice();
  std::shared_ptr<const Snapshot> snapshot = closed_round_.updated();
  if (waves_.next != nullptr) snapshot = waves_.next;
  if (unchanged_) {
    snapshot = store->Find(version);
  } else if (options_.replicated) {
    auto stepped =
        Replication::StepHomeArrays(this, compute, &not_finite_slice);
    if (!stepped.ok()) return stepped.status();
    snapshot = *std::move(stepped);
  }
  store->Publish(version + 1, std::move(snapshot));
  const bool stepped = !unchanged_;
  closed_round_ = ClosedRound();
  waves_ = WaveRound();
  unchanged_ = false;
  not_finite_slice_ = not_finite_slice;
  narrowing_ = stepped ? compute->narrowing() : NarrowingLoss();
  MutexLock lock(&mutex_);
  home_.Step();
  written_ = nullptr;  // at once: it is no part of the version after this one
  open_round_->Publish(version + 1);
  DropOffer();
  offered_ = false;
  DropAllEndedRows();  // those that were held for the round
  WakeFiller();
  return absl::OkStatus();
}

void ShardEngine::ShowLoaded(ShardCompute* compute) {
  MutexLock lock(&mutex_);
  const uint64_t version = home_.id().version;
  compute->store()->Publish(version, std::move(loaded_));
  loaded_ = nullptr;
  not_finite_slice_ = -1;
  narrowing_ = NarrowingLoss();
  open_round_->Publish(version);
}

absl::StatusOr<PhaseResult> ShardEngine::Publish(const Phase& phase,
                                                 ShardCompute* compute,
                                                 Closures* ready) {
  bool repeated;
  bool prepared;
  absl::Status status = CheckPublish(phase, &repeated, &prepared);
  if (!status.ok()) return status;
  PhaseResult result;
  if (repeated) {
    result.not_finite_slice = not_finite_slice_;
    result.narrowing = narrowing_;
    return result;
  }
  if (phase.publish.seed) {
    status = LoadSeed(phase, compute).status();
    if (!status.ok()) return status;
    ShowLoaded(compute);
  } else {
    // A skipped round needs no Update before.
    if (!prepared) status = Update(phase, compute).status();
    if (status.ok()) status = TakeStep(compute);
    if (!status.ok()) return status;
    result.not_finite_slice = not_finite_slice_;
    result.narrowing = narrowing_;
    Replication::ReleaseReplica(this, compute);
  }
  MutexLock lock(&mutex_);
  WakeFiller();
  *ready = ResolvePulls();
  if (progress_ != nullptr) {
    ready->push_back([progress = std::exchange(progress_, nullptr)] {
      progress->Publish();
    });
  }
  return result;
}

}  // namespace agg
