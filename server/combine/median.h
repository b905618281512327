// The median of numbers, and how far each of them is from it.
#ifndef AGG_SERVER_COMBINE_MEDIAN_H_
#define AGG_SERVER_COMBINE_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "server/base/dcheck.h"

namespace agg {

// The middle one, or the mean of the middle two; of two equal infinities that
// infinity. Sorts: there are as many values as workers. T: double, or a
// duration. REQUIRES: not empty, no NaN.
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

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_MEDIAN_H_
