// 1/(P |g|) for each row, and 0 for a row of zeros: server/combine/README.md
// 2.3.
#include "server/combine/unit_mean.h"

#include <cmath>

namespace agg {

RuleResult UnitMeanRule::Combine(const RuleInput& input, RuleState* /*state*/,
                                 absl::Span<double> coefficients) {
  const int num_rows = input.gram.num_rows();
  for (int i = 0; i < num_rows; ++i) {
    const double norm = std::sqrt(input.gram(i, i));
    coefficients[i] = norm > 0.0 ? 1.0 / (num_rows * norm) : 0.0;
  }
  RuleResult result = ResultOf(input.gram, coefficients);
  result.of_unit_rows = true;
  return result;
}

}  // namespace agg
