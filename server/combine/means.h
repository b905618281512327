// The rules whose coefficients need no inner product of two rows
// (server/combine/README.md 2). Each costs O(P^2), for the norm.
#ifndef AGG_SERVER_COMBINE_MEANS_H_
#define AGG_SERVER_COMBINE_MEANS_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"

namespace agg {

// The rule sum, where every row counts once: w_i = 1.
class SumRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

// Fills all with 1/P, P = coefficients.size() >= 1. Also for guards of other
// rules, which fall back to the mean.
void MeanCoefficients(absl::Span<double> coefficients);

// The rule mean, where every row counts the same: w_i = 1/P.
class MeanRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

// The rule weighted_mean: w_i = n_i / sum n, n_i the row's number of examples.
class WeightedMeanRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

// The rule unit_mean, where only the direction of a row counts:
// w_i = 1 / (P sqrt(G_ii)). A zero row has no direction: its coefficient is 0,
// and it still counts in P.
class UnitMeanRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_MEANS_H_
