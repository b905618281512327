// The rule mean: every row counts the same, one in all.
#ifndef AGG_SERVER_COMBINE_MEAN_H_
#define AGG_SERVER_COMBINE_MEAN_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"

namespace agg {

// Fills all with 1/P, P = coefficients.size() >= 1. Also for guards of other
// rules, which fall back to the mean.
void MeanCoefficients(absl::Span<double> coefficients);

// w_i = 1/P (server/combine/README.md 2.1). O(P^2), for the norm.
class MeanRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_MEAN_H_
