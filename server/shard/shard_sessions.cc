// Workers' sessions and rows: the SetSession part of a ShardEngine.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/shard_engine_impl.h"

namespace agg {

absl::Status ShardEngine::Impl::CheckRank(uint64_t epoch, int32_t rank) const {
  absl::Status status = CheckEpoch(epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) {
    return absl::FailedPreconditionError("no manifest has been set yet");
  }
  if (rank < 0 || rank >= options_.max_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", rank, "; allowed: 0 to ", options_.max_workers - 1));
  }
  return absl::OkStatus();
}

absl::Status ShardEngine::Impl::EnsureRow(uint64_t epoch, int32_t rank) {
  std::shared_ptr<ShardCompute> compute;
  MemoryPlan plan;
  {
    MutexLock lock(&mutex_);
    absl::Status status = CheckRank(epoch, rank);
    if (!status.ok() || compute_->rows()->row(rank) != nullptr) return status;
    compute = compute_;
    plan = compute->PlanWith(1);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = compute->AllocateRow(plan);
  if (!buffer.ok()) return buffer.status();
  MutexLock lock(&mutex_);
  if (compute_ != compute) {
    return absl::FailedPreconditionError("the manifest has changed meanwhile");
  }
  if (compute->rows()->row(rank) == nullptr) {
    compute->rows()->Add(rank, *std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status ShardEngine::Impl::SetSession(uint64_t epoch,
                                           const SessionChange& change) {
  if (!change.remove) {
    const absl::Status status = EnsureRow(epoch, change.rank);
    if (!status.ok()) return status;
  }
  MutexLock lock(&mutex_);
  const absl::Status status = CheckRank(epoch, change.rank);
  if (!status.ok()) return status;
  const uint64_t ended = change.remove ? change.session : change.replaces;
  if (ended != 0) {
    // A superseded worker stays away; one whose lease ran out may come back.
    sessions_.End(ended, change.remove && !change.evicted
                             ? absl::NotFoundError(change.reason)
                             : absl::AbortedError(change.reason));
    if (change.keep_row) {
      ledger_->Hold(change.rank, ended);
    } else {
      ledger_->Erase(change.rank, ended);
    }
    if (seed_session_ == ended) seed_session_ = 0;
    if (change.remove) round_ranks_.erase(change.rank);
    claims_ended_.NotifyAll();  // its frames need not wait any more
  }
  if (!change.remove) {
    sessions_.Begin(change.session, change.rank);
    if (change.seed_role) seed_session_ = change.session;
  }
  ExpectRows();
  return absl::OkStatus();
}

}  // namespace agg
