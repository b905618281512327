// A slice's address is its row's buffer plus its offset in the shard's layout.
#include "server/ingest/gradient_rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "kernels/row_format.h"
#include "server/base/status_macros.h"

namespace agg {

GradientRows::GradientRows(Backend* backend, const ShardLayout* layout,
                           DType dtype, int32_t max_workers)
    : backend_(backend), layout_(layout), dtype_(dtype), rows_(max_workers) {}

int64_t GradientRows::row_bytes() const {
  // A shard without slices takes part in rounds all the same, and backends want
  // a buffer that is not empty.
  const int64_t num_elements =
      std::max(layout_->num_elements, LayoutAlignment(dtype_));
  return RowBytes(dtype_, num_elements);
}

absl::StatusOr<std::unique_ptr<Buffer>> GradientRows::Allocate() const {
  return backend_->Allocate(BufferUse::kRow, row_bytes());
}

std::unique_ptr<Buffer> GradientRows::Add(int32_t rank,
                                          std::unique_ptr<Buffer> buffer) {
  MutexLock lock(&mutex_);
  Row& row = rows_[rank];
  if (row.common == nullptr) row.common = std::move(buffer);
  return buffer;  // null if it was taken
}

bool GradientRows::HasCommon(int32_t rank) const {
  MutexLock lock(&mutex_);
  return rows_[rank].common != nullptr;
}

bool GradientRows::HasGranted(int32_t rank) const {
  MutexLock lock(&mutex_);
  return !rows_[rank].granted.empty();
}

int64_t GradientRows::num_rows() const {
  MutexLock lock(&mutex_);
  return std::count_if(rows_.begin(), rows_.end(), [](const Row& row) {
    return row.common != nullptr || !row.granted.empty();
  });
}

int64_t GradientRows::num_successors() const {
  int64_t number = 0;
  MutexLock lock(&mutex_);
  for (const Row& row : rows_) {
    if (row.granted.size() > 1) {
      number += static_cast<int64_t>(row.granted.size()) - 1;
    }
  }
  return number;
}

std::shared_ptr<const Buffer> GradientRows::Find(int32_t rank,
                                                 uint64_t session) const {
  MutexLock lock(&mutex_);
  const Row& row = rows_[rank];
  const auto granted = row.granted.find(session);
  return granted == row.granted.end() ? row.common : granted->second;
}

std::shared_ptr<const Buffer> GradientRows::Grant(int32_t rank,
                                                  uint64_t session) {
  MutexLock lock(&mutex_);
  Row& row = rows_[rank];
  const auto granted = row.granted.find(session);
  if (granted != row.granted.end()) return granted->second;
  if (row.common == nullptr) return nullptr;
  return row.granted[session] = std::move(row.common);
}

bool GradientRows::Granted(int32_t rank, uint64_t session) const {
  MutexLock lock(&mutex_);
  return rows_[rank].granted.count(session) != 0;
}

std::map<uint64_t, std::shared_ptr<const Buffer>> GradientRows::Keep(
    int32_t rank, const std::function<bool(uint64_t session)>& kept) {
  std::map<uint64_t, std::shared_ptr<const Buffer>> dropped;
  MutexLock lock(&mutex_);
  auto& granted = rows_[rank].granted;
  for (auto row = granted.begin(); row != granted.end();) {
    const auto next = std::next(row);
    if (!kept(row->first)) dropped.insert(granted.extract(row));
    row = next;
  }
  return dropped;
}

absl::Status GradientRows::Park(int32_t rank, uint64_t session,
                                uint32_t attempt) {
  const std::shared_ptr<const Buffer> from = Find(rank, session);
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> copy, Allocate());
  std::memcpy(copy->host(), from->host(),
              static_cast<size_t>(from->num_bytes()));
  MutexLock lock(&mutex_);
  Row& row = rows_[rank];
  row.parked = std::move(copy);
  row.parked_session = session;
  row.parked_attempt = attempt;
  return absl::OkStatus();
}

void GradientRows::Unpark() {
  MutexLock lock(&mutex_);
  for (Row& row : rows_) row.parked = nullptr;
}

std::shared_ptr<const Buffer> GradientRows::FindAttempt(
    int32_t rank, uint64_t session, uint32_t attempt) const {
  {
    MutexLock lock(&mutex_);
    const Row& row = rows_[rank];
    if (row.parked != nullptr && row.parked_session == session &&
        row.parked_attempt == attempt) {
      return row.parked;
    }
  }
  return Find(rank, session);
}

int64_t GradientRows::SliceOffset(int32_t slice) const {
  return layout_->ranges[slice].begin * DTypeBytes(dtype_);
}

SlicePlace GradientRows::PlaceIn(const Buffer& row, int32_t slice) const {
  SlicePlace place;
  place.elements = row.host() + SliceOffset(slice);
  if (dtype_ == DType::kI8) {
    const int64_t begin = layout_->ranges[slice].begin;
    place.scales = row.host() + ScaleOffset(row.num_bytes(), begin);
  }
  return place;
}

void GradientRows::Clear(const Buffer& row, int32_t slice) const {
  const SlicePlace place = PlaceIn(row, slice);
  const int64_t num_elements = layout_->ranges[slice].num_elements;
  std::memset(place.elements, 0,
              static_cast<size_t>(num_elements * DTypeBytes(dtype_)));
  // A scale that was not finite would make the zeros NaN.
  if (place.scales == nullptr) return;
  std::memset(place.scales, 0,
              static_cast<size_t>(ScaleBytes(dtype_, num_elements)));
}

}  // namespace agg
