// The rule sum: every row counts once.
#ifndef AGG_SERVER_COMBINE_SUM_H_
#define AGG_SERVER_COMBINE_SUM_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"

namespace agg {

// w_i = 1 (server/combine/README.md 2.1). O(P^2), for the norm.
class SumRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_SUM_H_
