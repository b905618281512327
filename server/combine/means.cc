// The coefficients of server/combine/README.md 2.
#include "server/combine/means.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace agg {

RuleResult SumRule::Combine(const RuleInput& input, RuleState* /*state*/,
                            absl::Span<double> coefficients) {
  std::fill(coefficients.begin(), coefficients.end(), 1.0);
  return ResultOf(input.gram, coefficients);
}

void MeanCoefficients(absl::Span<double> coefficients) {
  const double share = 1.0 / static_cast<double>(coefficients.size());
  std::fill(coefficients.begin(), coefficients.end(), share);
}

RuleResult MeanRule::Combine(const RuleInput& input, RuleState* /*state*/,
                             absl::Span<double> coefficients) {
  MeanCoefficients(coefficients);
  return ResultOf(input.gram, coefficients);
}

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
