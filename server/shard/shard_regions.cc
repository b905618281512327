// Memory for other processes: the GrantRegions part of a ShardEngine.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ingest/gradient_rows.h"
#include "server/params/parameter_store.h"
#include "server/params/shared_buffer.h"
#include "server/shard/memory_plan.h"
#include "server/shard/shard_engine.h"

namespace agg {

void ShardEngine::GrantRow(const RegionQuery& query, int32_t rank,
                           RegionGrant* grant) {
  const uint64_t session = query.session;
  // Nothing is written on a shard without slices, and the ledger holds none of
  // its rows for a session that has ended.
  if (compute_->layout()->slices.empty()) return;
  GradientRows* const rows = compute_->rows();
  if (!rows->Granted(rank, session)) {
    if (SharedBuffer::RegionOf(rows->Find(rank, session).get()) == nullptr) {
      return;
    }
    // A former session's row is in the common memory, unless it has its own.
    grant->row_later = !rows->Granted(rank, open_round_->OwnerOf(rank)) &&
                       !open_round_->RowIsFree(rank, session);
    // With its own, two rows of the rank may be written until the round ends.
    if (rows->HasGranted(rank)) {
      grant->row_later |= !CheckMemoryPlan(compute_->PlanWithSuccessors(1),
                                           options_.memory_budget)
                               .ok();
    }
    if (grant->row_later) return;
  }
  const std::shared_ptr<const Buffer> row = rows->Grant(rank, session);
  grant->row.push_back(
      {options_.push_dtype, SharedBuffer::RegionOf(row.get())});
  if (query.takes_device && row->device_share() != nullptr) {
    grant->row_device.push_back(
        {options_.push_dtype, grant->row[0].region->number(), row->num_bytes(),
         *row->device_share(), row, nullptr});
  }
  const auto num_slices =
      static_cast<int32_t>(compute_->layout()->slices.size());
  for (int32_t slice = 0; slice < num_slices; ++slice) {
    grant->row_offsets.push_back(
        static_cast<uint64_t>(rows->SliceOffset(slice)));
  }
}

absl::StatusOr<RegionGrant> ShardEngine::GrantRegions(
    const RegionQuery& query) {
  RegionGrant grant;
  MutexLock lock(&mutex_);
  const absl::Status status =
      epoch_.CheckOpen(query.epoch == 0 ? epoch_.number() : query.epoch);
  if (!status.ok()) return status;
  if (compute_ == nullptr) return NoManifest();
  if (query.life != life_) {
    return absl::UnavailableError(absl::StrCat(
        "shard ", options_.ordinal, " has another life than the one asked"));
  }
  if (query.session != 0) {
    const absl::StatusOr<int32_t> rank = sessions_.Rank(query.session);
    if (!rank.ok()) return rank.status();
    if (options_.push_dtype != DType::kI8 || query.takes_int8) {
      GrantRow(query, *rank, &grant);
    }
  }
  // Clang's analysis knows of no lock in a lambda.
  ParameterStore* const store = compute_->store();
  const auto add = [&grant, store](DType dtype) {
    for (auto& region : store->regions(dtype)) {
      grant.versions.push_back({dtype, std::move(region)});
    }
  };
  add(DType::kF32);
  if (options_.pull_dtype != DType::kF32) add(options_.pull_dtype);
  if (query.takes_device && store->master_head() != nullptr) {
    const Buffer& master = *store->master();
    grant.parameters_device.push_back(
        {DType::kF32, store->master_head()->number(), master.num_bytes(),
         *master.device_share(), compute_, store->master_head()});
  }
  return grant;
}

}  // namespace agg
