#include "server/round/early_grams.h"

#include <algorithm>
#include <utility>

namespace agg {
namespace {

// The row of `rank`, or null. `rows` ascends by rank.
const RoundRow* FindRank(const std::vector<RoundRow>& rows, int32_t rank) {
  const auto found = std::lower_bound(
      rows.begin(), rows.end(), rank,
      [](const RoundRow& row, int32_t r) { return row.rank < r; });
  return found == rows.end() || found->rank != rank ? nullptr : &*found;
}

}  // namespace

bool SameRows(const std::vector<RoundRow>& a, const std::vector<RoundRow>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const RoundRow& x, const RoundRow& y) {
                      return x.rank == y.rank && x.session == y.session;
                    });
}

void EarlyGrams::Expect(std::vector<RoundRow> rows, int num_slices) {
  rows_ = std::move(rows);
  num_landed_.assign(num_slices, 0);
  ready_.clear();
  results_.assign(num_slices, std::nullopt);
  reading_is_stale_ = true;
}

void EarlyGrams::SliceLanded(int32_t rank, uint64_t session, int32_t slice) {
  const RoundRow* const row = FindRank(rows_, rank);
  if (row == nullptr || row->session != session) return;
  if (++num_landed_[slice] == static_cast<int>(rows_.size())) {
    ready_.push_back(slice);
  }
}

EarlyGrams::Batch EarlyGrams::Take() {
  Batch batch;
  batch.rows = rows_;
  const auto end = ready_.begin() + std::min(ready_.size(), kMaxBatch);
  batch.slices.assign(ready_.begin(), end);
  ready_.erase(ready_.begin(), end);
  std::sort(batch.slices.begin(), batch.slices.end());
  reading_ = batch;
  reading_is_stale_ = false;
  return batch;
}

void EarlyGrams::Finish(std::vector<SliceGram> grams) {
  const Batch batch = *std::move(reading_);
  reading_.reset();
  if (reading_is_stale_ || grams.size() != batch.slices.size()) return;
  for (size_t i = 0; i < grams.size(); ++i) {
    results_[batch.slices[i]] = std::move(grams[i]);
  }
}

bool EarlyGrams::Reading(int32_t rank, int32_t slice) const {
  return reading_.has_value() && FindRank(reading_->rows, rank) != nullptr &&
         std::binary_search(reading_->slices.begin(), reading_->slices.end(),
                            slice);
}

std::vector<std::optional<SliceGram>> EarlyGrams::TakeResults(
    const std::vector<RoundRow>& rows) {
  const auto num_slices = static_cast<int>(results_.size());
  std::vector<std::optional<SliceGram>> results(num_slices);
  if (SameRows(rows, rows_)) results.swap(results_);
  Expect({}, num_slices);
  return results;
}

}  // namespace agg
