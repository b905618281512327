// A row's address is its buffer plus the slice's offset in the shard's
// layout.
#include "server/ingest/gradient_rows.h"

#include <algorithm>
#include <utility>

namespace agg {

GradientRows::GradientRows(Backend* backend, const ShardLayout* layout,
                           DType dtype, int32_t max_workers)
    : backend_(backend), layout_(layout), dtype_(dtype), rows_(max_workers) {}

absl::StatusOr<std::unique_ptr<Buffer>> GradientRows::Allocate() const {
  // A shard without slices takes part in rounds all the same, and backends want
  // a buffer that is not empty.
  const int64_t num_elements =
      std::max(layout_->num_elements, kLayoutAlignment);
  return backend_->Allocate(BufferUse::kRow, num_elements * DTypeBytes(dtype_));
}

void GradientRows::Add(int32_t rank, std::unique_ptr<Buffer> buffer) {
  rows_[rank] = std::move(buffer);
  ++num_rows_;
}

char* GradientRows::SliceAddress(int32_t rank, int32_t slice) const {
  return rows_[rank]->host() +
         layout_->ranges[slice].begin * DTypeBytes(dtype_);
}

int64_t GradientRows::SliceBytes(int32_t slice) const {
  return layout_->ranges[slice].num_elements * DTypeBytes(dtype_);
}

}  // namespace agg
