// Norms come from the diagonal of the sum over tensors. A row that leaves takes
// its row and column out of every tensor's matrix.
#include "server/combine/outliers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "server/base/dcheck.h"

namespace agg {

std::vector<double> RobustDeviations(std::vector<double> values, double least) {
  AGG_DCHECK(!values.empty());
  AGG_DCHECK(least >= 0.0);
  constexpr double kMadToDeviation = 1.4826;
  const double median = Median(values);
  for (double& value : values) {
    value = value == median ? 0.0 : std::abs(value - median);
  }
  const double deviation = std::max(kMadToDeviation * Median(values), least);
  for (double& value : values) value = value == 0.0 ? 0.0 : value / deviation;
  return values;
}

namespace {

// By kept row: how many deviations its logarithm is from the median; 0 for a
// zero row. Empty with too few others.
std::vector<double> Deviations(const GramMatrix& total) {
  std::vector<double> logs;
  for (int i = 0; i < total.num_rows(); ++i) {
    if (total(i, i) > 0.0) logs.push_back(0.5 * std::log(total(i, i)));
  }
  if (logs.size() < kMinJudgedRows) return {};
  logs = RobustDeviations(std::move(logs), kLeastDeviation);
  std::vector<double> deviations;
  size_t next = 0;
  for (int i = 0; i < total.num_rows(); ++i) {
    deviations.push_back(total(i, i) > 0.0 ? logs[next++] : 0.0);
  }
  return deviations;
}

template <typename T>
void KeepOnly(const std::vector<int>& places, std::vector<T>* list) {
  std::vector<T> kept;
  for (const int place : places) kept.push_back((*list)[place]);
  *list = std::move(kept);
}

// Only the rows at these places (among the kept ones) stay.
void Leave(const std::vector<int>& places, CompactedRound* round) {
  for (const OutlierRow& row : round->outliers.rows) {
    round->excluded_ranks.push_back(row.rank);
  }
  std::sort(round->excluded_ranks.begin(), round->excluded_ranks.end());
  KeepOnly(places, &round->kept);
  KeepOnly(places, &round->rows);
  KeepOnly(places, &round->scales);
  KeepOnly(places, &round->examples);
  for (GramMatrix& gram : round->tensors) gram = gram.Compact(places);
  round->total = round->total.Compact(places);
}

}  // namespace

void JudgeOutliers(const OutlierOptions& options, CompactedRound* round) {
  if (options.max_deviations == 0.0 || round->num_rows() == 0) return;
  const std::vector<double> deviations = Deviations(round->total);
  round->outliers.too_few_rows = deviations.empty();
  std::vector<int> rest;
  for (size_t i = 0; i < deviations.size(); ++i) {
    const int row = static_cast<int>(i);
    if (deviations[i] <= options.max_deviations) {
      rest.push_back(row);
      continue;
    }
    round->outliers.rows.push_back({round->rows[i].rank, round->kept[i],
                                    std::sqrt(round->total(row, row)),
                                    deviations[i]});
  }
  if (round->outliers.rows.empty()) return;
  round->outliers.excluded = options.action == OutlierAction::kExclude;
  if (round->outliers.excluded) Leave(rest, round);
}

namespace {

// Of the squared distance beside the squared length.
constexpr double kNearlyEqual = 1e-5;

bool AreEqual(const GramMatrix& gram, int i, int j) {
  const double distance = (gram(i, i) - gram(i, j)) + (gram(j, j) - gram(i, j));
  return distance <= kNearlyEqual * gram(i, i);
}

}  // namespace

std::vector<std::vector<int>> EqualRows(const GramMatrix& gram) {
  const int num_rows = gram.num_rows();
  std::vector<std::vector<int>> groups;
  std::vector<bool> grouped(num_rows, false);
  for (int i = 0; i < num_rows; ++i) {
    if (grouped[i] || !(gram(i, i) > 0.0)) continue;
    std::vector<int> group = {i};
    for (int j = i + 1; j < num_rows; ++j) {
      if (grouped[j] || !AreEqual(gram, i, j)) continue;
      grouped[j] = true;
      group.push_back(j);
    }
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace agg
