// Grams are kept as they came: which rows are whole is known at the end.
#include "server/coordinator/waved_round.h"

#include <algorithm>

namespace agg {

void WavedRound::Add(const std::vector<int>& rows, const std::vector<int>& used,
                     GramMatrix gram, const std::string& why) {
  for (size_t row = 0; row < num_left_out_.size(); ++row) {
    if (!std::binary_search(used.begin(), used.end(), static_cast<int>(row))) {
      ++num_left_out_[row];
    }
  }
  if (used.empty() && num_unchanged_++ == 0) why_unchanged_ = why;
  tensors_.push_back({rows, std::move(gram)});
}

std::vector<PartialRow> WavedRound::PartialRows(
    absl::Span<const RowInfo> rows) const {
  std::vector<PartialRow> partial;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (num_left_out_[row] == 0) continue;
    partial.push_back({rows[row].rank,
                       static_cast<int>(num_tensors()) - num_left_out_[row],
                       static_cast<int>(num_tensors())});
  }
  return partial;
}

CompactedRound WavedRound::TakeWhole(absl::Span<const RowInfo> rows) {
  std::vector<int> whole;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (num_left_out_[row] == 0) whole.push_back(static_cast<int>(row));
  }
  std::vector<GramMatrix> grams;
  if (!whole.empty()) {
    for (Tensor& tensor : tensors_) {
      std::vector<int> places;
      for (const int row : whole) {
        places.push_back(static_cast<int>(
            std::lower_bound(tensor.rows.begin(), tensor.rows.end(), row) -
            tensor.rows.begin()));
      }
      grams.push_back(places.size() == tensor.rows.size()
                          ? std::move(tensor.gram)
                          : tensor.gram.Compact(places));
    }
  }
  CompactedRound round = CompactRound(rows, whole, std::move(grams));
  round.num_tensors = num_tensors();
  return round;
}

}  // namespace agg
