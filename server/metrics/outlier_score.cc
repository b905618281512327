// A robust z-score of gradient norms on a logarithmic scale.
#include "server/metrics/outlier_score.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "server/combine/median.h"

namespace agg {
namespace {

// |a - b|, 0 for equal infinities.
double Distance(double a, double b) { return a == b ? 0.0 : std::abs(a - b); }

}  // namespace

std::vector<double> OutlierScores(const std::vector<double>& norms) {
  std::vector<double> scores(norms.size(),
                             std::numeric_limits<double>::quiet_NaN());
  std::vector<double> logs;
  for (const double norm : norms) {
    if (!std::isnan(norm)) logs.push_back(std::log(norm));
  }
  if (logs.size() < kMinOutlierNorms) return scores;
  const double median = Median(logs);
  std::vector<double> distances;
  for (const double value : logs) distances.push_back(Distance(value, median));
  const double deviation = kMadToDeviation * Median(distances);
  for (size_t i = 0; i < norms.size(); ++i) {
    if (std::isnan(norms[i])) continue;
    const double distance = Distance(std::log(norms[i]), median);
    // x / 0 is +Inf, and so is Inf over a deviation that is not; Inf / Inf,
    // where half of the norms are 0, stays undefined.
    scores[i] = distance == 0.0 ? 0.0 : distance / deviation;
  }
  return scores;
}

}  // namespace agg
