// Waves are closed and updated one after the other, so that what is written of
// the next version is always the beginning of the layout.
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/params/parameter_store.h"
#include "server/shard/shard_engine.h"

namespace agg {

absl::Status ShardEngine::Waves::CheckWave(ShardEngine* engine,
                                           const Phase& phase) {
  if (engine->open_round_ == nullptr) return NoManifest();
  const int num_waves = engine->open_round_->num_waves();
  if (num_waves == 0) {
    return absl::FailedPreconditionError("a wave of a job without waves");
  }
  if (phase.wave < 1 || phase.wave > num_waves) {
    return absl::InvalidArgumentError(absl::StrCat(
        "phase.wave is ", phase.wave, "; allowed: 1 to ", num_waves));
  }
  // No reference: clang's analysis loses the lock behind one.
  const int32_t wave = engine->round_.waves.wave;
  const bool updated = engine->round_.waves.updated;
  const bool next =
      phase.wave == wave + 1 && (wave == 0 || updated) &&
      (phase.kind == PhaseKind::kClose || phase.kind == PhaseKind::kAbandon);
  if (next || phase.wave == wave) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(PhaseName(phase.kind), " of wave ", phase.wave, "; wave ",
                   wave, updated ? " has been updated" : " is closed"));
}

absl::StatusOr<PhaseResult> ShardEngine::Waves::Run(ShardEngine* engine,
                                                    const Phase& phase,
                                                    Closures* ready) {
  std::shared_ptr<ShardCompute> held;
  {
    MutexLock lock(&engine->mutex_);
    AGG_RETURN_IF_ERROR(engine->CheckPhase(phase));
    AGG_RETURN_IF_ERROR(CheckWave(engine, phase));
    held = engine->compute_;
  }
  ShardCompute* const compute = held.get();
  switch (phase.kind) {
    case PhaseKind::kClose:
      return Close(engine, phase, compute);
    case PhaseKind::kCompensatedGram:
      return engine->round_.closed.CompensatedGram(compute, phase.tensors);
    case PhaseKind::kUpdate:
      return Update(engine, phase, compute, ready);
    case PhaseKind::kAbandon:
      return Abandon(engine, phase);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("phase ", PhaseName(phase.kind), " has no waves"));
  }
}

void ShardEngine::Waves::MarkClosed(ShardEngine* engine, const Phase& phase) {
  OpenRound* const round = engine->open_round_.get();
  std::vector<int32_t> incomplete_ranks;
  for (const RoundRow& row : phase.rows) {
    // A shard without slices has complete rows without memory for them.
    if (!round->HasWave(row, phase.wave) ||
        engine->compute_->rows()->Find(row.rank, row.session) == nullptr) {
      incomplete_ranks.push_back(row.rank);
    }
  }
  // What is read from here on belongs to the rows that are named.
  round->CloseWave(phase.wave, phase.rows);
  engine->round_.waves.wave = phase.wave;
  engine->round_.waves.updated = false;
  engine->round_.closed = ClosedRound(phase.rows, {}, incomplete_ranks);
}

absl::StatusOr<PhaseResult> ShardEngine::Waves::Close(ShardEngine* engine,
                                                      const Phase& phase,
                                                      ShardCompute* compute) {
  std::vector<int32_t> slices;
  {
    MutexLock lock(&engine->mutex_);
    if (engine->round_.waves.wave != phase.wave) {
      MarkClosed(engine, phase);
    } else if (!(engine->round_.closed.rows() == phase.rows)) {
      return absl::FailedPreconditionError(
          absl::StrCat("wave ", phase.wave, " of round ", phase.round,
                       " was closed with other rows before"));
    }
    if (engine->round_.closed.close_result().has_value()) {
      return *engine->round_.closed.close_result();
    }
    const WaveSlices& wave = engine->open_round_->slices_of(phase.wave);
    slices.resize(wave.end - wave.begin);
    std::iota(slices.begin(), slices.end(), static_cast<int32_t>(wave.begin));
    engine->totals_.grams_at_close += static_cast<int64_t>(slices.size());
  }
  return engine->round_.closed.CloseSlices(compute, slices);
}

absl::StatusOr<PhaseResult> ShardEngine::Waves::Abandon(ShardEngine* engine,
                                                        const Phase& phase) {
  WaveRound* const waves = &engine->round_.waves;
  if (waves->wave != phase.wave) return PhaseResult();  // a repeat
  if (waves->updated) {
    return absl::FailedPreconditionError(
        absl::StrCat("abandon of wave ", phase.wave, ", which was updated"));
  }
  MutexLock lock(&engine->mutex_);
  waves->wave = phase.wave - 1;
  waves->updated = waves->wave > 0;
  engine->round_.closed = ClosedRound();
  engine->open_round_->ReopenWave(phase.wave);
  return PhaseResult();
}

ShardEngine::Closures ShardEngine::Waves::Show(ShardEngine* engine, int wave) {
  if (engine->progress_ == nullptr) {
    engine->progress_ = std::make_shared<VersionProgress>();
    engine->written_ = engine->round_.waves.next;
  }
  // Pulls that wait get the version with what is written; those that have it
  // hear of more.
  Closures ready;
  ready.push_back([progress = engine->progress_,
                   end = engine->open_round_->slices_of(wave).end] {
    progress->Advance(end);
  });
  for (auto& call : engine->ResolvePulls()) ready.push_back(std::move(call));
  return ready;
}

absl::StatusOr<PhaseResult> ShardEngine::Waves::Update(ShardEngine* engine,
                                                       const Phase& phase,
                                                       ShardCompute* compute,
                                                       Closures* ready) {
  WaveRound* const waves = &engine->round_.waves;
  if (waves->updated) return waves->result;
  if (waves->next == nullptr) {
    int num_revoked = 0;
    auto next = compute->store()->NextSnapshot(&num_revoked);
    MutexLock lock(&engine->mutex_);
    engine->totals_.revoked_snapshots += num_revoked;
    if (!next.ok()) return next.status();  // the arrays are as they were
    waves->next = *std::move(next);
  }
  uint64_t version;
  {
    MutexLock lock(&engine->mutex_);
    // From here on the arrays may be between two versions (P18).
    if (!engine->home_.prepared()) engine->home_.BeginPrepare(phase.epoch);
    version = engine->home_.id().version;
  }
  const std::shared_ptr<const Snapshot> before =
      compute->store()->Find(version);
  PhaseResult result;
  const absl::Status status =
      compute->UpdateWave(engine->round_.closed.rows(), phase.step, *before,
                          waves->next.get(), &result.not_finite_slice);
  MutexLock lock(&engine->mutex_);
  if (!status.ok()) {
    engine->home_.Void();
    engine->BreakEpoch(phase.epoch, "the update of a wave", status);
    return status;
  }
  // The epoch may have ended meanwhile: then nobody hears of what is written.
  AGG_RETURN_IF_ERROR(engine->epoch_.Check(phase.epoch));
  result.narrowing = compute->narrowing();
  waves->updated = true;
  waves->result = result;
  if (phase.wave == engine->open_round_->num_waves()) {
    engine->home_.EndPrepare(nullptr);
  }
  *ready = Show(engine, phase.wave);
  return result;
}

}  // namespace agg
