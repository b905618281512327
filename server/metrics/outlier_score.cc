// A robust z-score of gradient norms on a logarithmic scale.
#include "server/metrics/outlier_score.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "server/combine/outliers.h"

namespace agg {

std::vector<double> OutlierScores(const std::vector<double>& norms) {
  std::vector<double> scores(norms.size(),
                             std::numeric_limits<double>::quiet_NaN());
  std::vector<double> logs;
  for (const double norm : norms) {
    if (!std::isnan(norm)) logs.push_back(std::log(norm));
  }
  if (logs.size() < kMinOutlierNorms) return scores;
  const std::vector<double> deviations = RobustDeviations(std::move(logs), 0.0);
  size_t next = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!std::isnan(norms[i])) scores[i] = deviations[next++];
  }
  return scores;
}

}  // namespace agg
