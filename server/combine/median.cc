// Sorts: there are as many numbers as workers.
#include "server/combine/median.h"

#include <algorithm>
#include <cstddef>

namespace agg {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  if (values.size() % 2 == 1) return values[half];
  const double low = values[half - 1], high = values[half];
  return low == high ? low : 0.5 * (low + high);  // -Inf twice is -Inf
}

}  // namespace agg
