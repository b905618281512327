// Landing frames: the Push part of a ShardEngine (P5). The transport copies the
// payload between BeginFrame and EndFrame, so that the only copy of a gradient
// goes from the socket's buffers to the row, under no lock.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ingest/shard_layout.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

// The first slice whose bytes were copied and had another checksum, or null.
const SliceLanding* FindBadSlice(const FrameLanding& landing) {
  const auto bad =
      std::find_if(landing.slices.begin(), landing.slices.end(),
                   [](const SliceLanding& slice) {
                     return slice.destination != nullptr && !slice.landed;
                   });
  return bad == landing.slices.end() ? nullptr : &*bad;
}

absl::Status OtherSum(const SliceLanding& bad) {
  return absl::DataLossError(absl::StrCat(
      "slice ", bad.slice,
      " arrived with another CRC32C than meta.crc32c says; push it again"));
}

// Whether the open round has the landing's row completely.
bool Completes(const FrameLanding& landing,
               const absl::StatusOr<bool>& complete) {
  return complete.ok() && *complete && !landing.closed &&
         landing.header.kind == PushKind::kGradient;
}

}  // namespace

absl::Status ShardEngine::AdmitFrame(FrameLanding* landing) const {
  const absl::Status status = epoch_.CheckOpen(landing->header.epoch);
  if (!status.ok()) return status;
  const absl::StatusOr<int32_t> rank = sessions_.Rank(landing->header.session);
  if (!rank.ok()) return rank.status();
  landing->rank = *rank;
  // A session is alive, so there is a manifest.
  return open_round_->Admit(landing);
}

absl::Status ShardEngine::CheckPlace(const FrameLanding& landing,
                                     ShardCompute* compute) {
  const FrameHeader& header = landing.header;
  if (!header.in_place) return absl::OkStatus();
  const GradientRows& rows = *compute->rows();
  if (!rows.Granted(landing.rank, header.session)) {
    return absl::InvalidArgumentError(
        "meta.in_place is set, and this session has no region here; "
        "allowed: after it has asked for one (P39)");
  }
  if (header.on_device &&
      rows.Find(landing.rank, header.session)->device_share() == nullptr) {
    return absl::InvalidArgumentError(
        "meta.on_device is set, and this session's row has no side on a device "
        "that others can map; allowed: where RegionReply.row_device was set "
        "(P47)");
  }
  return absl::OkStatus();
}

absl::StatusOr<FrameLanding> ShardEngine::BeginFrame(FrameHeader header) {
  FrameLanding landing;
  landing.header = std::move(header);
  std::shared_ptr<ShardCompute> compute;
  std::shared_ptr<const Buffer> row;
  const auto destination = [&](int32_t slice) {
    return compute->LandingPlace(landing.header.kind, landing.rank,
                                 landing.header.session, slice);
  };
  {
    MutexLock lock(&mutex_);
    // Everything is checked again after a wait: the session may have ended.
    for (;;) {
      const absl::Status status = AdmitFrame(&landing);
      if (!status.ok()) return status;
      compute = compute_;
      const absl::Status placed = CheckPlace(landing, compute.get());
      if (!placed.ok()) return placed;
      const absl::Status parked = ParkOffered(landing);
      if (!parked.ok()) return parked;
      if (landing.header.kind == PushKind::kSeed && !landing.closed) {
        const absl::Status taken = compute->TakeSeed();
        if (!taken.ok()) return taken;
      }
      if (open_round_->TryClaim(destination, &landing)) break;
      claims_ended_.Wait(&mutex_);
    }
    row = compute->rows()->Find(landing.rank, landing.header.session);
    for (const SliceLanding& slice : landing.slices) {
      if (slice.destination != nullptr) continue;
      totals_.duplicate_bytes += slice.num_bytes;
    }
  }
  // What the worker leaves out counts as zero (FrameMeta.absent_slices).
  for (const int32_t slice : landing.absent) {
    compute->rows()->Clear(*row, slice);
  }
  landing.owner = std::move(compute);
  landing.row = std::move(row);
  return landing;
}

absl::Status ShardEngine::CheckOwner(const FrameLanding& landing) const {
  if (compute_ == landing.owner) return absl::OkStatus();
  return epoch_.Stale(landing.header.epoch);
}

// The backend may begin to copy what has landed to its device, unless it is
// there.
void ShardEngine::NotifyRowLanded(const FrameLanding& landing,
                                  ShardCompute* compute) {
  if (landing.header.kind != PushKind::kGradient) return;
  const ShardLayout& layout = *compute->layout();
  const Buffer* const row = landing.row.get();
  for (const SliceLanding& slice : landing.slices) {
    if (landing.header.on_device) break;
    if (slice.destination == nullptr || !slice.landed) continue;
    backend_.RowLanded(*row, landing.header.dtype,
                       layout.ranges[layout.local_slice[slice.slice]]);
  }
  for (const int32_t slice : landing.absent) {
    backend_.RowLanded(*row, landing.header.dtype, layout.ranges[slice]);
  }
}

void ShardEngine::CountLanded(const FrameLanding& landing) {
  for (const SliceLanding& slice : landing.slices) {
    if (slice.destination == nullptr || !slice.landed) continue;
    totals_.push_bytes += slice.num_bytes;
    if (landing.header.in_place) totals_.push_bytes_in_place += slice.num_bytes;
    if (landing.header.on_device) {
      totals_.push_bytes_on_device += slice.num_bytes;
    }
  }
  if (FindBadSlice(landing) != nullptr) ++totals_.crc_errors;
}

void ShardEngine::TellOfWaves(const FrameHeader& header, int32_t waves) {
  if (waves == 0 || on_complete_ == nullptr) return;
  on_complete_(header.epoch,
               {{header.session, header.round, header.attempt, waves}});
}

absl::StatusOr<FrameResult> ShardEngine::EndFrame(const FrameLanding& landing) {
  std::shared_ptr<ShardCompute> compute;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = CheckOwner(landing);
    if (!status.ok()) return status;
    compute = compute_;
  }
  // Before the row can be complete, hence before any phase reads it.
  NotifyRowLanded(landing, compute.get());
  FrameResult result;
  result.closed = landing.closed;
  absl::StatusOr<bool> complete = landing.closed;
  absl::Status epoch;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = CheckOwner(landing);
    if (!status.ok()) return status;
    // What has landed stays, but is not acknowledged: its worker asks in the
    // new epoch what it owes (P27).
    if (epoch_.number() != landing.header.epoch) {
      epoch = epoch_.Stale(landing.header.epoch);
    }
    result.waves = open_round_->EndClaims(landing);
    CountLanded(landing);
    WakeFiller();
    claims_ended_.NotifyAll();
    if (!landing.closed) complete = open_round_->Complete(landing);
    result.round_complete = epoch.ok() && Completes(landing, complete) &&
                            !open_round_->CompleteRound().empty();
  }
  result.more = options_.reports_together && !result.round_complete;
  if (result.round_complete) OfferClose(landing.header.epoch);
  TellOfWaves(landing.header, result.waves);
  const SliceLanding* const bad = FindBadSlice(landing);
  if (bad != nullptr) return OtherSum(*bad);
  if (!complete.ok()) return complete.status();
  if (!epoch.ok()) return epoch;
  result.acknowledge = *complete;
  return result;
}

absl::Status ShardEngine::CheckEpoch(uint64_t epoch) const {
  MutexLock lock(&mutex_);
  return epoch_.Check(epoch);
}

absl::Status ShardEngine::CheckPushed(const PushedRow& pushed) const {
  MutexLock lock(&mutex_);
  // The coordinator itself refuses commits of a lost epoch and of an ended
  // session, with the better message.
  const absl::StatusOr<int32_t> rank = sessions_.Rank(pushed.session);
  if (!epoch_.Check(pushed.epoch).ok() || open_round_ == nullptr ||
      !rank.ok() || !open_round_->LacksSlices(pushed, *rank)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "commit of ",
      pushed.kind == PushKind::kSeed ? std::string("the seed")
                                     : absl::StrCat("round ", pushed.round),
      ": its push is incomplete on shard ", options_.ordinal,
      "; push its slices again and commit after all acknowledgements"));
}

}  // namespace agg
