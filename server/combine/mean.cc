// 1/P for each row: server/combine/README.md 2.1.
#include "server/combine/mean.h"

#include <algorithm>

namespace agg {

void MeanCoefficients(absl::Span<double> coefficients) {
  const double share = 1.0 / static_cast<double>(coefficients.size());
  std::fill(coefficients.begin(), coefficients.end(), share);
}

RuleResult MeanRule::Combine(const RuleInput& input, RuleState* /*state*/,
                             absl::Span<double> coefficients) {
  MeanCoefficients(coefficients);
  return ResultOf(input.gram, coefficients);
}

}  // namespace agg
