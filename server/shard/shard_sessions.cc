// Workers' sessions and the memory of their rows: the SetSession part of a
// ShardEngine.
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/ingest/gradient_rows.h"
#include "server/params/shared_buffer.h"
#include "server/shard/memory_plan.h"
#include "server/shard/shard_engine.h"

namespace agg {

absl::Status ShardEngine::CheckRank(uint64_t epoch, int32_t rank) const {
  absl::Status status = epoch_.Check(epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) return NoManifest();
  if (rank < 0 || rank >= options_.max_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", rank, "; allowed: 0 to ", options_.max_workers - 1));
  }
  return absl::OkStatus();
}

absl::Status ShardEngine::EnsureRow(uint64_t epoch, int32_t rank,
                                    uint64_t session) {
  std::shared_ptr<ShardCompute> compute;
  MemoryPlan plan;
  bool succeeds = false;
  {
    MutexLock lock(&mutex_);
    absl::Status status = CheckRank(epoch, rank);
    if (!status.ok() || compute_->rows()->HasCommon(rank)) return status;
    // In a recovery a session goes on in its own row. One that this shard has
    // not heard of needs a row, whatever the one that lives here has.
    const auto alive = sessions_.alive().find(rank);
    if (session == 0 && alive != sessions_.alive().end()) {
      session = alive->second;  // coordinators of older releases do not say
    }
    if (!epoch_.open() && session != 0 &&
        compute_->rows()->Granted(rank, session)) {
      return status;
    }
    compute = compute_;
    plan = compute->PlanWith(1);
    succeeds = compute->rows()->HasGranted(rank);
  }
  // Without the lock: a row may be gigabytes, and frames of the other workers
  // must go on landing.
  AwaitEndedRows();  // whose memory the plan does not count
  std::unique_ptr<Buffer> successor =
      succeeds ? compute->AllocateSuccessor() : nullptr;
  if (successor == nullptr) {
    absl::StatusOr<std::unique_ptr<Buffer>> row = compute->AllocateRow(plan);
    if (!row.ok()) return row.status();
    successor = *std::move(row);
  }
  MutexLock lock(&mutex_);
  if (compute_ != compute) {
    return absl::FailedPreconditionError("the manifest has changed meanwhile");
  }
  // Of two Joins one has been quicker; the other's row ends without the lock.
  successor = compute->rows()->Add(rank, std::move(successor));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ShardEngine::OwnerOf(uint64_t epoch,
                                                 uint64_t session) const {
  MutexLock lock(&mutex_);
  const absl::Status status = epoch_.CheckOpen(epoch);
  if (!status.ok()) return status;
  return sessions_.Owner(session);
}

void ShardEngine::DropEndedRows(int32_t rank) {
  const auto alive = sessions_.alive().find(rank);
  const uint64_t now = alive == sessions_.alive().end() ? 0 : alive->second;
  const uint64_t held = open_round_->HeldSession(rank);
  auto dropped = compute_->rows()->Keep(rank, [now, held](uint64_t session) {
    return session == now || session == held;
  });
  for (auto& [session, row] : dropped) {
    // Its process may live on, frozen, and would hold the memory. One whose
    // lease ran out may come back, with a gradient that is nowhere else.
    if (absl::IsAborted(sessions_.Rank(session).status())) {
      const std::shared_ptr<Region> region = SharedBuffer::RegionOf(row.get());
      if (region != nullptr) region->EmptyAtEnd();
    }
    releaser_.Release(std::move(row));
  }
}

void ShardEngine::DropAllEndedRows() {
  for (int32_t rank = 0; rank < options_.max_workers; ++rank) {
    DropEndedRows(rank);
  }
}

absl::Status ShardEngine::ReserveRow(uint64_t epoch, int32_t rank,
                                     uint64_t session) {
  const absl::Status status = EnsureRow(epoch, rank, session);
  ReportLostDevice();
  return status;
}

absl::Status ShardEngine::FinishJob(uint64_t epoch) {
  Closures ready;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = epoch_.Check(epoch);
    if (!status.ok() || open_round_ == nullptr) return status;
    open_round_->Finish();
    ready = ResolvePulls();
  }
  for (std::function<void()>& callback : ready) callback();
  return absl::OkStatus();
}

bool ShardEngine::HasOwnRow(const SessionChange& change) {
  MutexLock lock(&mutex_);
  return compute_ != nullptr && change.rank >= 0 &&
         change.rank < options_.max_workers &&
         compute_->rows()->Granted(change.rank, change.session);
}

absl::Status ShardEngine::SetSession(uint64_t epoch,
                                     const SessionChange& change) {
  if (change.finished) return FinishJob(epoch);
  for (;;) {
    if (!change.remove) {
      // Allocates nothing if the coordinator has reserved the row (P32).
      const absl::Status status =
          HasOwnRow(change) ? absl::OkStatus()
                            : ReserveRow(epoch, change.rank, change.session);
      if (!status.ok()) return status;
    }
    MutexLock lock(&mutex_);
    const absl::Status status = CheckRank(epoch, change.rank);
    if (!status.ok()) return status;
    // The session before may have been granted the row meanwhile (P39).
    if (!change.remove && !HasRow(change)) continue;
    TakeChange(change);
    return absl::OkStatus();
  }
}

bool ShardEngine::HasRow(const SessionChange& change) const {
  return compute_->rows()->Find(change.rank, change.session) != nullptr;
}

void ShardEngine::TakeChange(const SessionChange& change) {
  const uint64_t ended = change.remove ? change.session : change.replaces;
  if (ended != 0) {
    if (!change.keep_row) ForgetOffered(ended);
    // A superseded worker stays away; one whose lease ran out may come back.
    sessions_.End(ended, change.remove && !change.evicted
                             ? absl::NotFoundError(change.reason)
                             : absl::AbortedError(change.reason));
  }
  if (!change.remove) {
    sessions_.Begin(change.session, change.rank, change.first_round,
                    change.client, change.identity);
  }
  open_round_->ChangeSession(change);
  DropEndedRows(change.rank);
  WakeFiller();
  claims_ended_.NotifyAll();  // frames of an ended session stop waiting
}

}  // namespace agg
