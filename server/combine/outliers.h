// Which rows of a round are far longer or shorter than the others, and what
// becomes of them (server/combine/README.md 14); and which are the same.
#ifndef AGG_SERVER_COMBINE_OUTLIERS_H_
#define AGG_SERVER_COMBINE_OUTLIERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/base/dcheck.h"
#include "server/combine/compacted_round.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// The median: the middle one, or the mean of the middle two; of two equal
// infinities that infinity. Sorts: there are as many values as workers. T:
// double, or a duration. REQUIRES: not empty, no NaN.
template <typename T>
T Median(std::vector<T> values) {
  AGG_DCHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  if (values.size() % 2 == 1) return values[half];
  const T low = values[half - 1], high = values[half];
  return low == high ? low : (low + high) / 2;  // -Inf twice is -Inf
}

// Each value as deviations from the median:
//   |v_i - median v| / max(1.4826 median_j |v_j - median v|, least)
// The median absolute deviation (MAD) times 1.4826 estimates the standard
// deviation of normally distributed numbers. The median itself has 0, whatever
// the divisor, and also where it is infinite; another value has +Inf if the
// divisor is 0, and NaN if both are infinite. REQUIRES: as Median; least >= 0.
std::vector<double> RobustDeviations(std::vector<double> values, double least);

enum class OutlierAction : uint8_t { kExclude, kWarn };

struct OutlierOptions {
  double max_deviations = 0.0;  // >= 1; 0: nobody looks for outliers
  OutlierAction action = OutlierAction::kExclude;
};

// Fewer rows say too little of what is usual.
inline constexpr size_t kMinJudgedRows = 4;
// A deviation of the logarithm counts as at least so much: where all norms are
// nearly the same, a row is not an outlier for being 1% longer.
inline constexpr double kLeastDeviation = 0.05;

// Numbers over the kept rows that are not zero, with l_i = ln sqrt(G_ii), G of
// all tensors, loss scale removed:
//
//   deviation = max(1.4826 median |l_j - median l|, kLeastDeviation)
//   an outlier: |l_i - median l| > max_deviations * deviation
//
// A zero row neither counts nor is one. With fewer than kMinJudgedRows others
// there are none, and round->outliers says too_few_rows. At most half of the
// rows are outliers.
//
// Notes them in round->outliers; with kExclude they leave the round as rows
// that are not finite have. Does nothing without kept rows or with
// max_deviations 0. O(P), and O(P^2) for each tensor if a row leaves.
void JudgeOutliers(const OutlierOptions& options, CompactedRound* round);

// Finds workers that compute on the same data: groups of two rows or more, each
// within 0.3% of the length of its group's first row: ||g_i - g_j||^2 <= 1e-5
// ||g_i||^2, by G alone (server/combine/README.md 7). Such rows are of one
// batch, computed twice (dropout off, or nothing but rounding apart): even
// batches of thousands of examples give gradients that are further apart.
// Ascending; rows of zeros are in none.
std::vector<std::vector<int>> EqualRows(const GramMatrix& gram);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_OUTLIERS_H_
