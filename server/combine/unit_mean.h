// The rule unit_mean: only the direction of a row counts.
#ifndef AGG_SERVER_COMBINE_UNIT_MEAN_H_
#define AGG_SERVER_COMBINE_UNIT_MEAN_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"

namespace agg {

// w_i = 1 / (P sqrt(G_ii)) (server/combine/README.md 2.3). A zero row has no
// direction: its coefficient is 0, and it still counts in P. O(P^2), for the
// norm.
class UnitMeanRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_UNIT_MEAN_H_
