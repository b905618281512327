// 1 for each row: server/combine/README.md 2.1.
#include "server/combine/sum.h"

#include <algorithm>

namespace agg {

RuleResult SumRule::Combine(const RuleInput& input, RuleState* /*state*/,
                            absl::Span<double> coefficients) {
  std::fill(coefficients.begin(), coefficients.end(), 1.0);
  return ResultOf(input.gram, coefficients);
}

}  // namespace agg
