// The coordinator's phases on one shard's slices: the RunPhase part of a
// ShardEngine.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/shard/shard_engine_impl.h"

namespace agg {
namespace {

// The positions in the layout of the slices of `tensors` (ascending).
std::vector<int32_t> SlicesOf(const ShardLayout& layout,
                              const std::vector<int32_t>& tensors) {
  std::vector<int32_t> slices;
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const int32_t tensor = layout.plan.slices[layout.slices[i]].tensor;
    if (std::binary_search(tensors.begin(), tensors.end(), tensor)) {
      slices.push_back(static_cast<int32_t>(i));
    }
  }
  return slices;
}

}  // namespace

absl::Status ShardEngine::Impl::CheckPhase(const Phase& phase) const {
  absl::Status status = CheckEpoch(phase.epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) {
    return absl::FailedPreconditionError("no manifest has been set yet");
  }
  const bool seed = phase.kind == PhaseKind::kPublish && phase.publish.seed;
  const bool repeated_publish = phase.kind == PhaseKind::kPublish &&
                                published_ && phase.publish.version == version_;
  if (seed || repeated_publish) return absl::OkStatus();
  if (!published_ || phase.round != version_) {
    return absl::FailedPreconditionError(
        absl::StrCat("phase of round ", phase.round, "; the open round is ",
                     published_ ? absl::StrCat(version_) : "none"));
  }
  const bool needs_close = phase.kind == PhaseKind::kCompensatedGram ||
                           phase.kind == PhaseKind::kNorms ||
                           phase.kind == PhaseKind::kUpdate;
  const bool complete = closed_ && memory_.close.has_value() &&
                        memory_.close->incomplete_ranks.empty();
  if (needs_close && !complete) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", phase.round, " has not been closed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::RunPhase(const Phase& phase) {
  const absl::Time start = absl::Now();
  absl::StatusOr<PhaseResult> result = absl::UnknownError("");
  Closures ready;
  {
    const PhaseLock phase_lock(this);
    result = Dispatch(phase, &ready);
  }
  if (result.ok()) result->seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (std::function<void()>& callback : ready) callback();
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::Dispatch(const Phase& phase,
                                                        Closures* ready) {
  {
    MutexLock lock(&mutex_);
    absl::Status status = CheckPhase(phase);
    if (!status.ok()) return status;
    phase_compute_ = compute_;
  }
  switch (phase.kind) {
    case PhaseKind::kClose:
      return Close(phase);
    case PhaseKind::kCompensatedGram:
      return CompensatedGram(phase);
    case PhaseKind::kNorms:
      return Norms(phase);
    case PhaseKind::kUpdate:
      return Update(phase);
    case PhaseKind::kPublish:
      return Publish(phase, ready);
    case PhaseKind::kAbandon:
      return Abandon();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("phase.kind is ", static_cast<int>(phase.kind)));
}

std::vector<int32_t> ShardEngine::Impl::IncompleteRanks(
    const Phase& phase) const {
  std::vector<int32_t> ranks;
  for (const RoundRow& row : phase.rows) {
    if (row.rank < 0 || row.rank >= options_.max_workers ||
        compute_->rows()->row(row.rank) == nullptr ||
        !ledger_->Complete(row.rank, row.session, phase.round)) {
      ranks.push_back(row.rank);
    }
  }
  return ranks;
}

absl::Status ShardEngine::Impl::MarkClosed(const Phase& phase) {
  if (phase.rows.empty()) {
    return absl::InvalidArgumentError(
        "close.rows is empty; allowed: 1 or more");
  }
  closed_ = true;
  closed_rows_ = phase.rows;
  memory_ = PhaseMemory();
  PhaseResult refusal;
  refusal.incomplete_ranks = IncompleteRanks(phase);
  // Frozen all the same: a repeat must not find them complete meanwhile.
  if (!refusal.incomplete_ranks.empty()) memory_.close = std::move(refusal);
  return absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::Close(const Phase& phase) {
  {
    MutexLock lock(&mutex_);
    if (!closed_) {
      absl::Status status = MarkClosed(phase);
      if (!status.ok()) return status;
    } else if (!SameRows(closed_rows_, phase.rows)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "round ", phase.round, " was closed with other rows before"));
    }
    if (memory_.close.has_value()) return *memory_.close;
  }
  absl::StatusOr<std::vector<SliceGram>> grams = ClosingGrams(phase.rows);
  if (!grams.ok()) return grams.status();
  PhaseResult result;
  result.grams = *std::move(grams);
  memory_.close = result;
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::CompensatedGram(
    const Phase& phase) {
  if (memory_.compensated.has_value() &&
      memory_.compensated_tensors == phase.tensors) {
    return *memory_.compensated;
  }
  std::vector<RoundRow> rows;
  {
    MutexLock lock(&mutex_);
    rows = closed_rows_;
  }
  absl::StatusOr<std::vector<SliceGram>> grams = phase_compute_->Gram(
      rows, SlicesOf(*phase_compute_->layout(), phase.tensors),
      /*compensated=*/true);
  if (!grams.ok()) return grams.status();
  PhaseResult result;
  result.grams = *std::move(grams);
  memory_.compensated_tensors = phase.tensors;
  memory_.compensated = result;
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::Norms(const Phase& phase) {
  if (memory_.norms.has_value()) return *memory_.norms;
  std::vector<RoundRow> rows;
  {
    MutexLock lock(&mutex_);
    rows = closed_rows_;
  }
  absl::StatusOr<std::vector<SliceNorms>> norms =
      phase_compute_->Norms(rows, phase.step);
  if (!norms.ok()) return norms.status();
  PhaseResult result;
  result.norms = *std::move(norms);
  memory_.norms = result;
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::Update(const Phase& phase) {
  if (memory_.updated_round == phase.round) return PhaseResult();
  std::vector<RoundRow> rows;
  {
    MutexLock lock(&mutex_);
    rows = closed_rows_;
  }
  int revoked = 0;
  std::shared_ptr<Snapshot> snapshot =
      phase_compute_->store()->NextSnapshot(&revoked);
  absl::Status status =
      phase_compute_->Update(rows, phase.step, snapshot.get());
  MutexLock lock(&mutex_);
  counters_.revoked_snapshots += revoked;
  if (!status.ok()) {
    // Master weights may hold a part of the step: this epoch cannot go on.
    lost_ = absl::UnavailableError(
        absl::StrCat("shard ", options_.ordinal,
                     " failed within an update: ", status.message()));
    return status;
  }
  memory_.updated_round = phase.round;
  memory_.updated = std::move(snapshot);
  return PhaseResult();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> ShardEngine::Impl::SeedSnapshot(
    const Phase& phase) {
  std::shared_ptr<Snapshot> seed;
  {
    MutexLock lock(&mutex_);
    if (!ledger_->Complete(seed_row(), phase.publish.seed_session, 0)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the seed of session ", phase.publish.seed_session,
                       " is not complete"));
    }
    if (seed_ == nullptr) {  // a shard without slices
      int revoked;
      seed_ = phase_compute_->store()->NextSnapshot(&revoked);
    }
    seed = seed_;
  }
  absl::Status status = phase_compute_->LoadSeed(seed.get());
  if (!status.ok()) return status;  // seed_ stays, for a repeat
  MutexLock lock(&mutex_);
  seed_ = nullptr;
  return std::shared_ptr<const Snapshot>(std::move(seed));
}

absl::StatusOr<std::shared_ptr<const Snapshot>>
ShardEngine::Impl::UpdatedSnapshot(const Phase& phase) {
  if (phase.publish.unchanged) {
    return phase_compute_->store()->Find(phase.round);
  }
  if (memory_.updated_round != phase.round || memory_.updated == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", phase.round, " has not been updated"));
  }
  return memory_.updated;
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::Publish(const Phase& phase,
                                                       Closures* ready) {
  const PublishPlan& plan = phase.publish;
  {
    MutexLock lock(&mutex_);
    if (published_ && version_ == plan.version) return PhaseResult();
    if (plan.seed ? published_ || plan.version != 0
                  : plan.version != phase.round + 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("publish of version ", plan.version, " in round ",
                       phase.round, "; current version ", version_));
    }
  }
  absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot =
      plan.seed ? SeedSnapshot(phase) : UpdatedSnapshot(phase);
  if (!snapshot.ok()) return snapshot.status();
  phase_compute_->store()->Publish(plan.version, *std::move(snapshot));
  memory_ = PhaseMemory();
  MutexLock lock(&mutex_);
  published_ = true;
  version_ = plan.version;
  closed_ = false;
  closed_rows_.clear();
  // The rows may be the same, but what they have landed is not.
  round_ranks_.clear();
  for (const auto& [rank, session] : sessions_.alive()) {
    round_ranks_.insert(rank);
  }
  early_.Expect({}, static_cast<int>(compute_->layout()->slices.size()));
  ExpectRows();
  *ready = pulls_.Resolve(
      [this](const Pulls::Request& request)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { return AnswerPull(request); });
  return PhaseResult();
}

absl::StatusOr<PhaseResult> ShardEngine::Impl::Abandon() {
  memory_ = PhaseMemory();
  MutexLock lock(&mutex_);
  closed_ = false;
  closed_rows_.clear();
  return PhaseResult();
}

}  // namespace agg
