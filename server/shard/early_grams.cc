// A batch is taken under the caller's lock and computed without it; results
// of a round that has changed meanwhile are dropped.
#include "server/shard/early_grams.h"

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

int64_t EarlyGrams::Bytes(int64_t num_slices) {
  // complete_ has a bit per slice, in words; ready_ doubles as it grows.
  constexpr int64_t kWordBits = 64;
  const int64_t words = (num_slices + kWordBits - 1) / kWordBits;
  return num_slices * static_cast<int64_t>(sizeof(std::optional<SliceGram>) +
                                           2 * sizeof(int32_t)) +
         words * (kWordBits / 8);
}

int64_t EarlyGrams::bytes() const {
  return static_cast<int64_t>(
      results_.capacity() * sizeof(std::optional<SliceGram>) +
      ready_.capacity() * sizeof(int32_t) + complete_.capacity() / 8);
}

void EarlyGrams::Expect(std::vector<RoundRow> rows, int num_slices) {
  rows_ = std::move(rows);
  complete_.assign(num_slices, false);
  ready_.clear();
  results_.assign(num_slices, std::nullopt);
  reading_is_stale_ = true;
}

void EarlyGrams::SliceComplete(int32_t slice) {
  if (complete_[slice]) return;
  complete_[slice] = true;
  ready_.push_back(slice);
}

EarlyGrams::Batch EarlyGrams::Take(const std::vector<ElementRange>& ranges,
                                   double max_products) {
  const double num_pairs =
      static_cast<double>(rows_.size()) * (rows_.size() + 1) / 2;
  Batch batch;
  batch.rows = rows_;
  double num_products = 0.0;
  for (const int32_t slice : ready_) {
    num_products += num_pairs * static_cast<double>(ranges[slice].num_elements);
    const bool full =
        batch.slices.size() == kMaxSlices || num_products > max_products;
    if (full && !batch.slices.empty()) break;
    batch.slices.push_back(slice);
  }
  ready_.erase(ready_.begin(), ready_.begin() + batch.slices.size());
  std::sort(batch.slices.begin(), batch.slices.end());
  reading_ = batch;
  reading_is_stale_ = false;
  return batch;
}

void EarlyGrams::Finish(std::vector<SliceGram> grams) {
  const Batch batch = *std::move(reading_);
  reading_.reset();
  if (reading_is_stale_) return;
  for (size_t i = 0; i < grams.size(); ++i) {
    results_[batch.slices[i]] = std::move(grams[i]);
  }
}

void EarlyGrams::GiveUp() {
  reading_.reset();
  ready_.clear();
  complete_.assign(complete_.size(), true);
}

bool EarlyGrams::Reading(int32_t rank, int32_t slice) const {
  return reading_.has_value() && FindRank(reading_->rows, rank) != nullptr &&
         std::binary_search(reading_->slices.begin(), reading_->slices.end(),
                            slice);
}

std::vector<std::optional<SliceGram>> EarlyGrams::TakeResults(
    const std::vector<RoundRow>& rows, int num_slices) {
  std::vector<std::optional<SliceGram>> results;
  if (rows == rows_) results = std::move(results_);
  results.resize(num_slices);
  Expect({}, num_slices);
  return results;
}

}  // namespace agg
