// Landing frames: the Push part of a ShardEngine.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ingest/frame_check.h"
#include "server/shard/shard_engine_impl.h"

namespace agg {

absl::Status ShardEngine::Impl::CheckSeedFrame(const FrameHeader& header) {
  if (published_) {
    return absl::AlreadyExistsError(
        absl::StrCat("the job is seeded; Pull its current version ", version_));
  }
  if (header.round != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.round is ", header.round, " in a seed; allowed: 0"));
  }
  if (header.session != seed_session_) {
    return absl::AlreadyExistsError(
        "another worker has the seed role; Pull version 0 instead");
  }
  if (seed_ == nullptr) {
    int revoked;
    seed_ = compute_->store()->NextSnapshot(&revoked);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ShardEngine::Impl::FrameRow(FrameLanding* landing) {
  const FrameHeader& header = landing->header;
  absl::Status status = CheckEpoch(header.epoch);
  if (!status.ok()) return status;
  absl::StatusOr<int32_t> rank = sessions_.Rank(header.session);
  if (!rank.ok()) return rank.status();
  status = CheckFrame(header, *compute_->layout(), options_.push_dtype);
  if (!status.ok()) return status;
  landing->rank = *rank;
  if (header.kind == PushKind::kSeed) {
    status = CheckSeedFrame(header);
    if (!status.ok()) return status;
    return seed_row();
  }
  if (!published_ || header.round > version_) {
    return absl::FailedPreconditionError(
        absl::StrCat("push for round ", header.round, "; ",
                     published_ ? absl::StrCat("current version ", version_)
                                : "no version is published yet"));
  }
  landing->closed = header.round < version_ || closed_;
  if (!landing->closed &&
      ledger_->HeldByAnother(*rank, header.session, header.round)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push for round ", header.round, ", in which a former session of rank ",
        *rank, " has committed; this one takes part from round ",
        header.round + 1));
  }
  return *rank;
}

bool ShardEngine::Impl::AnyBusy(int row, const FrameHeader& header) const {
  const ShardLayout& layout = *compute_->layout();
  for (const auto* list : {&header.slices, &header.absent_slices}) {
    for (uint32_t slice : *list) {
      const int32_t local = layout.local_slice[slice];
      if (ledger_->Busy(row, local)) return true;
      // A former session's bytes, which an early Gram still reads.
      if (row != seed_row() && early_.Reading(row, local) &&
          !ledger_->Landed(row, header.session, header.round, local)) {
        return true;
      }
    }
  }
  return false;
}

void ShardEngine::Impl::ClaimSlices(int row, FrameLanding* landing) {
  const ShardLayout& layout = *compute_->layout();
  const FrameHeader& header = landing->header;
  for (size_t i = 0; i < header.slices.size(); ++i) {
    const int32_t local = layout.local_slice[header.slices[i]];
    SliceLanding slice;
    slice.slice = static_cast<int32_t>(header.slices[i]);
    slice.crc32c = header.crc32c[i];
    slice.num_bytes =
        layout.ranges[local].num_elements * DTypeBytes(header.dtype);
    if (landing->closed || !ledger_->ClaimSlice(row, local)) {
      counters_.duplicate_bytes += slice.num_bytes;
    } else if (row == seed_row()) {
      slice.destination =
          seed_->buffers()->f32->host() + layout.ranges[local].begin * 4;
    } else {
      slice.destination = compute_->rows()->SliceAddress(row, local);
    }
    landing->slices.push_back(slice);
  }
  if (landing->closed) return;
  for (uint32_t slice : header.absent_slices) {
    const int32_t local = layout.local_slice[slice];
    if (ledger_->ClaimSlice(row, local)) landing->absent.push_back(local);
  }
}

absl::StatusOr<FrameLanding> ShardEngine::Impl::BeginFrame(FrameHeader header) {
  FrameLanding landing;
  landing.header = std::move(header);
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    for (;;) {
      absl::StatusOr<int> row = FrameRow(&landing);
      if (!row.ok()) return row.status();
      if (landing.closed ||
          (ledger_->Own(*row, landing.header.session, landing.header.round) &&
           !AnyBusy(*row, landing.header))) {
        ClaimSlices(*row, &landing);
        break;
      }
      // Another frame copies at this moment, or an early Gram reads a former
      // session's bytes: as long as a batch takes (early_grams.h).
      claims_ended_.Wait(&mutex_);
    }
    compute = compute_;
  }
  for (int32_t local : landing.absent) {
    std::memset(compute->rows()->SliceAddress(landing.rank, local), 0,
                static_cast<size_t>(compute->rows()->SliceBytes(local)));
  }
  landing.owner = compute;
  return landing;
}

void ShardEngine::Impl::TellBackend(const FrameLanding& landing,
                                    ShardCompute* compute) {
  const ShardLayout& layout = *compute->layout();
  const Buffer& row = *compute->rows()->row(landing.rank);
  for (const SliceLanding& slice : landing.slices) {
    if (slice.destination == nullptr || !slice.landed) continue;
    backend_.RowLanded(row, landing.header.dtype,
                       layout.ranges[layout.local_slice[slice.slice]]);
  }
  for (int32_t local : landing.absent) {
    backend_.RowLanded(row, landing.header.dtype, layout.ranges[local]);
  }
}

absl::StatusOr<FrameResult> ShardEngine::Impl::EndFrame(
    const FrameLanding& landing) {
  const FrameHeader& header = landing.header;
  const bool seed = header.kind == PushKind::kSeed;
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    compute = compute_;
    if (compute != landing.owner) {
      return absl::AbortedError(absl::StrCat("stale epoch ", header.epoch,
                                             "; current epoch ", epoch_));
    }
  }
  // Before the row can be complete, hence before any phase reads it.
  if (!seed) TellBackend(landing, compute.get());
  int32_t bad_slice = -1;
  FrameResult result;
  result.closed = landing.closed;
  {
    MutexLock lock(&mutex_);
    if (compute_ != compute) {
      return absl::AbortedError(absl::StrCat("stale epoch ", header.epoch,
                                             "; current epoch ", epoch_));
    }
    const ShardLayout& layout = *compute_->layout();
    const int row = seed ? seed_row() : landing.rank;
    for (const SliceLanding& slice : landing.slices) {
      if (slice.destination == nullptr) continue;
      ledger_->EndClaim(row, layout.local_slice[slice.slice], slice.landed);
      if (slice.landed) counters_.push_bytes += slice.num_bytes;
      if (!slice.landed && bad_slice < 0) bad_slice = slice.slice;
      if (!seed) CompleteIfLanded(layout.local_slice[slice.slice]);
    }
    for (int32_t local : landing.absent) {
      ledger_->EndClaim(row, local, true);
      CompleteIfLanded(local);
    }
    claims_ended_.NotifyAll();
    if (bad_slice >= 0) ++counters_.crc_errors;
    result.acknowledge =
        landing.closed || ledger_->Complete(row, header.session, header.round);
  }
  if (bad_slice >= 0) {
    return absl::DataLossError(absl::StrCat(
        "slice ", bad_slice,
        " arrived with another CRC32C than meta.crc32c says; push it again"));
  }
  return result;
}

absl::Status ShardEngine::Impl::CheckPushed(const PushedRow& pushed) const {
  MutexLock lock(&mutex_);
  if (!CheckEpoch(pushed.epoch).ok() || ledger_ == nullptr) {
    return absl::OkStatus();  // others say so
  }
  const absl::StatusOr<int32_t> rank = sessions_.Rank(pushed.session);
  if (!rank.ok()) return absl::OkStatus();
  const bool seed = pushed.kind == PushKind::kSeed;
  // Of a round that is over, or to come here, nothing is known.
  const bool open = seed ? !published_ && pushed.session == seed_session_
                         : published_ && pushed.round == version_;
  if (!open || ledger_->Complete(seed ? seed_row() : *rank, pushed.session,
                                 seed ? 0 : pushed.round)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "commit of ",
      seed ? std::string("the seed") : absl::StrCat("round ", pushed.round),
      ": its push is incomplete on shard ", options_.ordinal,
      "; push its slices again and commit after all acknowledgements"));
}

}  // namespace agg
