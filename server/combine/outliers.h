// Which rows of a round are far longer or shorter than the others, and what
// becomes of them (server/combine/README.md 14).
#ifndef AGG_SERVER_COMBINE_OUTLIERS_H_
#define AGG_SERVER_COMBINE_OUTLIERS_H_

#include <cstddef>
#include <cstdint>

#include "server/combine/compacted_round.h"

namespace agg {

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

// Over the kept rows that are not zero, with l_i = ln sqrt(G_ii), G of all
// tensors, loss scale removed:
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

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_OUTLIERS_H_
