// How far each worker's gradient norm lies from those of the others.
#ifndef AGG_SERVER_METRICS_OUTLIER_SCORE_H_
#define AGG_SERVER_METRICS_OUTLIER_SCORE_H_

#include <cstddef>
#include <vector>

namespace agg {

// Number of norms below which there are no scores: the MAD of a few values is
// often small by chance, and then a healthy worker looks like an outlier.
// README.md of this folder ("From how many workers on") has the measured
// shares.
inline constexpr size_t kMinOutlierNorms = 8;

// |log norm - median| / (1.4826 MAD) of each of `norms`, which are >= 0 or NaN
// (no norm: not counted, and no score). 1.4826 MAD estimates the standard
// deviation of normally distributed logarithms. A norm that is the median has
// score 0; another has +Inf when more than half of the norms are equal or it
// is 0. All NaN with fewer than kMinOutlierNorms norms.
std::vector<double> OutlierScores(const std::vector<double>& norms);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_OUTLIER_SCORE_H_
