#include "server/combine/combination_rule.h"

#include <algorithm>

#include "server/combine/gram_stats.h"
#include "server/combine/simple_rules.h"

namespace agg {
namespace {

RuleResult ApplyAdasum(AdasumVariant variant, const GramMatrix& gram,
                       AdasumSolver* solver, absl::Span<double> coefficients) {
  const AdasumResult adasum = solver->Solve(gram, variant, coefficients);
  return {adasum.norm_squared, adasum.kappa, false};
}

}  // namespace

bool IsAdasum(Rule rule) {
  return rule == Rule::kAdasum || rule == Rule::kAdasumCounted;
}

RuleResult ApplyRule(const RuleOptions& options, const GramMatrix& gram,
                     absl::Span<const double> examples, AdaconsState* state,
                     AdasumSolver* solver, absl::Span<double> coefficients) {
  RuleResult result;
  switch (options.rule) {
    case Rule::kSum:
      SumCoefficients(coefficients);
      break;
    case Rule::kMean:
      MeanCoefficients(coefficients);
      break;
    case Rule::kWeightedMean:
      WeightedMeanCoefficients(examples, coefficients);
      break;
    case Rule::kUnitMean:
      UnitMeanCoefficients(gram, coefficients);
      break;
    case Rule::kAdasum:
      return ApplyAdasum(AdasumVariant::kPlain, gram, solver, coefficients);
    case Rule::kAdasumCounted:
      return ApplyAdasum(AdasumVariant::kCounted, gram, solver, coefficients);
    case Rule::kAdacons:
      result.adacons_fallback =
          !AdaconsCoefficients(options.adacons, gram, state, coefficients);
      break;
  }
  result.norm_squared = std::max(QuadraticForm(gram, coefficients), 0.0);
  return result;
}

}  // namespace agg
