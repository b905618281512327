// Finds the rows that are not finite by the diagonal of G, and takes rows
// and columns of the others. Matrices are changed one by one and in place: with
// 10,000 tensors a second copy of all of them would be the peak of the
// coordinator's memory.
#include "server/combine/compacted_round.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "server/base/dcheck.h"

namespace agg {
namespace {

// A non-finite element anywhere makes the row's diagonal entry non-finite, and
// with it the sum, so that no pass over the rows is needed. `row` counts the
// matrices' rows.
bool IsUsable(absl::Span<const GramMatrix> tensors, int row, double scale) {
  double norm_squared = 0.0;
  for (const GramMatrix& gram : tensors) {
    const double scaled = gram(row, row) * (scale * scale);
    // Without its loss scale the row would be taken for one of zeros.
    if (scaled < kZeroNormSquared && gram(row, row) > 0.0) return false;
    norm_squared += scaled;
  }
  return std::isfinite(scale) && std::isfinite(norm_squared);
}

// In manifest order. Tensors differ in kind only while some are compensated
// and others are not: then the sum keeps the high parts.
GramMatrix SumTensors(const std::vector<GramMatrix>& tensors, int num_rows) {
  bool compensated = !tensors.empty();
  for (const GramMatrix& gram : tensors) {
    compensated = compensated && gram.compensated();
  }
  GramMatrix total(num_rows, compensated);
  for (const GramMatrix& gram : tensors) {
    if (gram.compensated() == compensated) {
      total.Add(gram);
      continue;
    }
    for (int i = 0; i < num_rows; ++i) {
      for (int j = i; j < num_rows; ++j) {
        total.Set(i, j, total(i, j) + gram(i, j));
      }
    }
  }
  return total;
}

void Keep(const RowInfo& row, int index, CompactedRound* round) {
  round->kept.push_back(index);
  round->rows.push_back(row);
  round->scales.push_back(1.0 / row.loss_scale);
  round->examples.push_back(static_cast<double>(row.examples));
}

// Whether all rows are kept as they are: nothing is scaled, and no row has a
// non-finite entry in any tensor, which would be in the sum, too. This is the
// usual round, and spares it a look at every tensor's diagonal.
bool IsComplete(absl::Span<const RowInfo> rows, const GramMatrix& total) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int row = static_cast<int>(i);
    if (rows[i].loss_scale != 1.0 || !std::isfinite(total(row, row))) {
      return false;
    }
  }
  return true;
}

// Where the kept rows are among those that the matrices have.
std::vector<int> KeptAmong(absl::Span<const int> present,
                           const CompactedRound& round) {
  std::vector<int> places;
  size_t next = 0;
  for (size_t i = 0; i < present.size(); ++i) {
    if (next == round.kept.size() || round.kept[next] != present[i]) continue;
    places.push_back(static_cast<int>(i));
    ++next;
  }
  return places;
}

// Takes the kept rows and removes their loss scales. The usual matrix has
// nothing to remove.
void CompactInPlace(absl::Span<const int> places, const CompactedRound& round,
                    GramMatrix* gram) {
  if (static_cast<int>(places.size()) != gram->num_rows()) {
    *gram = gram->Compact(places);
  }
  if (std::any_of(round.scales.begin(), round.scales.end(),
                  [](double scale) { return scale != 1.0; })) {
    gram->Scale(round.scales);
  }
}

bool AllSquare(absl::Span<const GramMatrix> grams, size_t num_rows) {
  return std::all_of(grams.begin(), grams.end(),
                     [num_rows](const GramMatrix& gram) {
                       return gram.num_rows() == static_cast<int>(num_rows);
                     });
}

}  // namespace

CompactedRound CompactRound(absl::Span<const RowInfo> rows,
                            absl::Span<const int> present,
                            std::vector<GramMatrix> tensors) {
  AGG_DCHECK(AllSquare(tensors, present.size()));
  CompactedRound round;
  round.num_committed = rows.size();
  round.num_tensors = tensors.size();
  if (present.size() == rows.size() && !rows.empty()) {
    round.total = SumTensors(tensors, static_cast<int>(rows.size()));
    if (IsComplete(rows, round.total)) {
      for (size_t i = 0; i < rows.size(); ++i) {
        Keep(rows[i], static_cast<int>(i), &round);
      }
      round.tensors = std::move(tensors);
      return round;
    }
  }
  size_t place = 0;  // among the present rows
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_present =
        place < present.size() && present[place] == static_cast<int>(i);
    if (is_present &&
        IsUsable(tensors, static_cast<int>(place), 1.0 / rows[i].loss_scale)) {
      Keep(rows[i], static_cast<int>(i), &round);
    } else {
      round.excluded_ranks.push_back(rows[i].rank);
    }
    if (is_present) ++place;
  }
  round.total = GramMatrix();
  if (round.kept.empty()) return round;
  const std::vector<int> places = KeptAmong(present, round);
  for (GramMatrix& gram : tensors) CompactInPlace(places, round, &gram);
  round.total = SumTensors(tensors, round.num_rows());
  round.tensors = std::move(tensors);
  return round;
}

CompactedRound CompactRound(absl::Span<const RowInfo> rows,
                            std::vector<GramMatrix> tensors) {
  std::vector<int> all(rows.size());
  std::iota(all.begin(), all.end(), 0);
  return CompactRound(rows, all, std::move(tensors));
}

std::vector<GramMatrix> SumGroups(const CompactedRound& round,
                                  size_t num_groups) {
  AGG_DCHECK(round.group_of_tensor.size() == round.tensors.size());
  std::vector<std::vector<double>> sums(num_groups);
  const int num_rows = round.num_rows();
  for (size_t t = 0; t < round.tensors.size(); ++t) {
    std::vector<double>& sum = sums[round.group_of_tensor[t]];
    sum.resize(static_cast<size_t>(num_rows) * (num_rows + 1) / 2);
    double* next = sum.data();
    for (int i = 0; i < num_rows; ++i) {
      for (const double value : round.tensors[t].UpperRow(i)) *next++ += value;
    }
  }
  std::vector<GramMatrix> groups;
  for (std::vector<double>& sum : sums) {
    groups.push_back(
        sum.empty() ? GramMatrix()
                    : GramMatrix::FromPacked(num_rows, std::move(sum), {}));
  }
  return groups;
}

void ReplaceTensors(absl::Span<const int> present,
                    absl::Span<const int> tensors,
                    std::vector<GramMatrix> grams, CompactedRound* round) {
  AGG_DCHECK(grams.size() == tensors.size());
  AGG_DCHECK(AllSquare(grams, present.size()));
  AGG_DCHECK(round->num_rows() >= 1);
  const std::vector<int> places = KeptAmong(present, *round);
  for (size_t i = 0; i < tensors.size(); ++i) {
    CompactInPlace(places, *round, &grams[i]);
    round->tensors[tensors[i]] = std::move(grams[i]);
  }
  round->total = SumTensors(round->tensors, round->num_rows());
}

}  // namespace agg
