// Finds the rows that are not finite by the diagonal of G, and takes rows
// and columns of the others.
#include "server/combine/compacted_round.h"

#include <cmath>
#include <cstddef>

namespace agg {
namespace {

// A non-finite element anywhere makes the row's diagonal entry non-finite, so
// that no pass over the rows is needed.
bool IsFinite(absl::Span<const GramMatrix> tensors, int row, double scale) {
  if (!std::isfinite(scale)) return false;
  for (const GramMatrix& gram : tensors) {
    const double norm_squared = gram(row, row);
    if (!std::isfinite(norm_squared)) return false;
    if (!std::isfinite(norm_squared * (scale * scale))) return false;
  }
  return true;
}

// In manifest order. Tensors differ in kind only while some are compensated
// and others are not: then the sum keeps the high parts.
void SumTensors(CompactedRound* round) {
  bool compensated = !round->tensors.empty();
  for (const GramMatrix* gram : round->tensors) {
    compensated = compensated && gram->compensated();
  }
  const int num_rows = round->num_rows();
  round->total = GramMatrix(num_rows, compensated);
  for (const GramMatrix* gram : round->tensors) {
    if (gram->compensated() == compensated) {
      round->total.Add(*gram);
      continue;
    }
    for (int i = 0; i < num_rows; ++i) {
      for (int j = i; j < num_rows; ++j) {
        round->total.Set(i, j, round->total(i, j) + (*gram)(i, j));
      }
    }
  }
}

}  // namespace

CompactedRound CompactRound(absl::Span<const RowInfo> rows,
                            absl::Span<const GramMatrix> tensors) {
  CompactedRound round;
  bool scaled = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double scale = 1.0 / rows[i].loss_scale;
    if (!IsFinite(tensors, static_cast<int>(i), scale)) {
      round.excluded_ranks.push_back(rows[i].rank);
      continue;
    }
    round.kept.push_back(static_cast<int>(i));
    round.rows.push_back(rows[i]);
    round.scales.push_back(scale);
    round.examples.push_back(static_cast<double>(rows[i].examples));
    scaled = scaled || scale != 1.0;
  }
  if (round.kept.empty()) return round;

  // The usual round has nothing to remove: then no matrix is copied.
  const bool all_kept = round.kept.size() == rows.size();
  round.tensors.reserve(tensors.size());
  round.owned.reserve(scaled || !all_kept ? tensors.size() : 0);
  for (const GramMatrix& gram : tensors) {
    if (!scaled && all_kept) {
      round.tensors.push_back(&gram);
      continue;
    }
    round.owned.push_back(all_kept ? gram : gram.Compact(round.kept));
    if (scaled) round.owned.back().Scale(round.scales);
    round.tensors.push_back(&round.owned.back());
  }
  SumTensors(&round);
  return round;
}

}  // namespace agg
