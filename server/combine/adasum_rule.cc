// Takes what a rule returns out of the solver's result.
#include "server/combine/adasum_rule.h"

namespace agg {
namespace {

RuleResult ResultOfTree(const AdasumResult& adasum) {
  RuleResult result;
  result.norm_squared = adasum.norm_squared;
  result.kappa = adasum.kappa;
  return result;
}

}  // namespace

RuleResult AdasumRule::Combine(const RuleInput& input, RuleState* /*state*/,
                               absl::Span<double> coefficients) {
  return ResultOfTree(
      solver_.Solve(input.gram, AdasumVariant::kPlain, coefficients));
}

RuleResult AdasumCountedRule::Combine(const RuleInput& input,
                                      RuleState* /*state*/,
                                      absl::Span<double> coefficients) {
  return ResultOfTree(
      solver_.Solve(input.gram, AdasumVariant::kCounted, coefficients));
}

}  // namespace agg
