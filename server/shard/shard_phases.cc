// Computation: the coordinator's phases up to the decision about a round, and
// early Grams in the gaps between them, which hide behind the network. Close
// takes the early Grams that fit its rows and computes the rest; the bits are
// the same either way, since a slice's Gram depends on its rows alone
// (kernels/backend.h).
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/log.h"
#include "server/ingest/shard_layout.h"
#include "server/shard/early_grams.h"
#include "server/shard/row_buffers.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_recovery.h"
#include "server/shard/shard_replication.h"
#include "server/shard/shard_waves.h"

namespace agg {

// --- In the gaps -------------------------------------------------------------

void ShardEngine::Fill() {
  if (options_.replicated && options_.background) {
    const TurnLock turn(&turn_);
    std::shared_ptr<ShardCompute> compute;
    {
      MutexLock lock(&mutex_);
      compute = compute_;
    }
    const absl::Status status = Replication::StepReplica(compute.get());
    // The replica is void now, and the epoch goes on: no phase is there to tell
    // the coordinator. The next round cannot be prepared without the replica;
    // this ends the epoch (P9), and the copy is fetched (P19).
    if (!status.ok()) {
      LogWarning("the step of a replica failed; its copy is void: ",
                 status.ToString());
    }
  }
  if (options_.early_gram) ComputeEarlyBatch();
  ReportLostDevice();
}

void ShardEngine::WakeFiller() {
  if (open_round_->early()->any_ready()) turn_.WakeFiller();
}

void ShardEngine::ComputeEarlyBatch() {
  const TurnLock turn(&turn_);
  EarlyGrams::Batch batch;
  RowBuffers rows;
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    // A phase may have come first and closed the round, or its epoch.
    if (!epoch_.open() || open_round_ == nullptr ||
        !open_round_->early()->any_ready()) {
      return;
    }
    compute = compute_;
    batch = open_round_->early()->Take(compute->layout()->ranges,
                                       compute->gram_products_at_once());
    // Under the lock: a session may end as soon as it is free.
    rows = RowBuffers(*compute->rows(), batch.rows);
  }
  absl::StatusOr<std::vector<SliceGram>> grams =
      compute->Gram(rows, batch.slices, /*compensated=*/false);
  MutexLock lock(&mutex_);
  if (grams.ok()) {
    open_round_->early()->Finish(*std::move(grams));
  } else {
    // Close tries again, and its error is the round's.
    LogWarning("early Gram: ", grams.status().ToString());
    open_round_->early()->GiveUp();
  }
  claims_ended_.NotifyAll();
  WakeFiller();
}

// --- Phases ------------------------------------------------------------------

namespace {

bool WaitsForADisk(PhaseKind kind) {
  return kind == PhaseKind::kCheckpointProgress || kind == PhaseKind::kSeal ||
         kind == PhaseKind::kReadManifest || kind == PhaseKind::kVerify;
}

// Whether the phase belongs to a round, or to the seed before the first one.
bool IsOfRounds(PhaseKind kind) { return kind <= PhaseKind::kLoadSeed; }

absl::Status OtherRows(const Phase& phase) {
  return absl::FailedPreconditionError(absl::StrCat(
      "round ", phase.round, " was closed with other rows before"));
}

bool NeedsGrams(const Phase& phase) {
  return phase.kind == PhaseKind::kCompensatedGram ||
         phase.kind == PhaseKind::kNorms ||
         (phase.kind == PhaseKind::kUpdate && !phase.publish.unchanged);
}

}  // namespace

absl::Status ShardEngine::CheckClosed(const Phase& phase) const {
  if (!open_round_->closed() && Offered(phase.rows)) return absl::OkStatus();
  if (!closed_round_.has_grams()) {
    return absl::FailedPreconditionError(
        phase.rows.empty()
            ? absl::StrCat("round ", phase.round, " has not been closed")
            : absl::StrCat("round ", phase.round,
                           " is to be closed with rows that are not offered"));
  }
  if (phase.rows.empty() || closed_round_.rows() == phase.rows) {
    return absl::OkStatus();
  }
  return OtherRows(phase);
}

absl::Status ShardEngine::CheckPhase(const Phase& phase) const {
  const absl::Status status = epoch_.Check(phase.epoch);
  if (!status.ok() || !IsOfRounds(phase.kind)) return status;
  if (open_round_ == nullptr) return NoManifest();
  if (!epoch_.open()) {
    return absl::FailedPreconditionError(
        absl::StrCat("phase ", PhaseName(phase.kind), " of a shard that is ",
                     "recovering; ", home_.Describe()));
  }
  const bool published = open_round_->published();
  const uint64_t version = open_round_->version();
  const bool publish = phase.kind == PhaseKind::kPublish;
  const bool repeated =
      publish && published && phase.publish.version == version;
  const bool seed =
      phase.kind == PhaseKind::kLoadSeed || (publish && phase.publish.seed);
  if (repeated || seed || HasPublished(phase)) return absl::OkStatus();
  if (!published || phase.round != version) {
    return absl::FailedPreconditionError(
        absl::StrCat("phase of round ", phase.round, "; the open round is ",
                     published ? absl::StrCat(version) : "none"));
  }
  return NeedsGrams(phase) ? CheckClosed(phase) : absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::RunPhase(const Phase& phase) {
  if (WaitsForADisk(phase.kind)) return RunCheckpointPhase(phase);
  const absl::Time start = absl::Now();
  absl::StatusOr<PhaseResult> result = absl::UnknownError("");
  Closures ready;
  uint64_t number;
  {
    MutexLock lock(&mutex_);
    number = ++num_phases_;
    running_[number] = {number, phase.kind, phase.round, /*progress=*/0};
  }
  {
    const TurnLock turn(&turn_);
    result = phase.wave == 0 ? Dispatch(phase, &ready)
                             : Waves::Run(this, phase, &ready);
  }
  if (result.ok()) result->seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (std::function<void()>& callback : ready) callback();
  {
    MutexLock lock(&mutex_);
    running_.erase(number);
  }
  ReportLostDevice();
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Dispatch(const Phase& phase,
                                                  Closures* ready) {
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = CheckPhase(phase);
    if (!status.ok()) return status;
    compute = compute_;
    // Not a repeat of what has published: its round is over.
    if (NeedsGrams(phase) && phase.round == open_round_->version() &&
        !open_round_->closed() && Offered(phase.rows)) {
      TakeOffer();
    }
  }
  if (IsOfRounds(phase.kind)) {
    const absl::Status status =
        Replication::StepInPhase(this, phase.epoch, compute.get());
    if (!status.ok()) return status;
  }
  switch (phase.kind) {
    case PhaseKind::kClose:
      return Close(phase, compute.get());
    case PhaseKind::kCompensatedGram:
      return closed_round_.CompensatedGram(compute.get(), phase.tensors);
    case PhaseKind::kNorms:
      return closed_round_.Norms(compute.get(), phase.step);
    case PhaseKind::kUpdate:
      return RunUpdate(phase, compute.get(), ready);
    case PhaseKind::kPublish:
      return Publish(phase, compute.get(), ready);
    case PhaseKind::kAbandon:
      return Abandon();
    case PhaseKind::kLoadSeed:
      return LoadSeed(phase, compute.get());
    case PhaseKind::kRecover:
    case PhaseKind::kFetch:
    case PhaseKind::kOpen:
      return Recovery::Run(this, phase, compute.get(), ready);
    case PhaseKind::kCapture:
      return Capture(phase, compute.get());
    case PhaseKind::kCheckpointProgress:
    case PhaseKind::kSeal:
    case PhaseKind::kReadManifest:
    case PhaseKind::kVerify:
      break;  // RunPhase
  }
  return absl::InvalidArgumentError(
      absl::StrCat("phase.kind is ", static_cast<int>(phase.kind)));
}

absl::Status ShardEngine::MarkClosed(const Phase& phase) {
  if (open_round_->closed()) {
    return closed_round_.rows() == phase.rows ? absl::OkStatus()
                                              : OtherRows(phase);
  }
  if (phase.rows.empty()) {
    return absl::InvalidArgumentError(
        "close.rows is empty; allowed: 1 or more");
  }
  if (Offered(phase.rows)) {
    TakeOffer();
    return absl::OkStatus();
  }
  DropOffer();
  std::vector<int32_t> incomplete_ranks;
  std::vector<uint32_t> row_crc32c;
  for (const RoundRow& row : phase.rows) {
    // A shard without slices has complete rows without memory for them.
    if (!open_round_->RowComplete(row) ||
        compute_->rows()->Find(row.rank, row.session) == nullptr) {
      incomplete_ranks.push_back(row.rank);
    } else {
      row_crc32c.push_back(open_round_->RowCrc32c(row));
    }
  }
  open_round_->Close();
  closed_round_ = ClosedRound(phase.rows, std::move(row_crc32c),
                              std::move(incomplete_ranks));
  return absl::OkStatus();
}

absl::StatusOr<PhaseResult> ShardEngine::Close(const Phase& phase,
                                               ShardCompute* compute) {
  std::vector<std::optional<SliceGram>> early;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = MarkClosed(phase);
    if (!status.ok()) return status;
    if (closed_round_.close_result().has_value()) {
      return *closed_round_.close_result();
    }
    early = open_round_->early()->TakeResults(
        phase.rows, static_cast<int>(compute->layout()->slices.size()));
  }
  const int64_t num_slices = static_cast<int64_t>(early.size());
  const int64_t num_early =
      std::count_if(early.begin(), early.end(),
                    [](const auto& gram) { return gram.has_value(); });
  absl::StatusOr<PhaseResult> result =
      closed_round_.Close(compute, std::move(early));
  if (!result.ok()) return result;
  MutexLock lock(&mutex_);
  totals_.early_grams += num_early;
  totals_.grams_at_close += num_slices - num_early;
  return result;
}

absl::StatusOr<PhaseResult> ShardEngine::Abandon() {
  MutexLock lock(&mutex_);
  // A late copy of an earlier call: the step that is prepared needs the rows,
  // and without replication it has been taken.
  if (home_.prepared()) {
    return absl::FailedPreconditionError(
        absl::StrCat("abandon: ", home_.Describe()));
  }
  closed_round_ = ClosedRound();
  waves_ = WaveRound();
  DropOffer();
  open_round_->Reopen();
  return PhaseResult();
}

}  // namespace agg
