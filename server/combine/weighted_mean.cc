// A row's examples over the examples of all rows: server/combine/README.md
// 2.2.
#include "server/combine/weighted_mean.h"

#include <cstddef>

namespace agg {

RuleResult WeightedMeanRule::Combine(const RuleInput& input,
                                     RuleState* /*state*/,
                                     absl::Span<double> coefficients) {
  double total = 0.0;
  for (const double examples : input.examples) total += examples;
  for (size_t i = 0; i < coefficients.size(); ++i) {
    coefficients[i] = input.examples[i] / total;
  }
  return ResultOf(input.gram, coefficients);
}

}  // namespace agg
