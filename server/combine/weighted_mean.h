// The rule weighted_mean: rows count by their numbers of examples.
#ifndef AGG_SERVER_COMBINE_WEIGHTED_MEAN_H_
#define AGG_SERVER_COMBINE_WEIGHTED_MEAN_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"

namespace agg {

// w_i = n_i / sum n, n_i the row's number of examples
// (server/combine/README.md 2.2). O(P^2), for the norm.
class WeightedMeanRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_WEIGHTED_MEAN_H_
