// Distances of equal infinities are 0, not NaN.
#include "server/combine/median.h"

#include <cmath>

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

}  // namespace agg
