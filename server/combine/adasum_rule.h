// The rules adasum and adasum_counted: the solver of adasum.h behind the
// interface of rules. Apart from it, since orthogonality needs the solver
// whatever the rule.
#ifndef AGG_SERVER_COMBINE_ADASUM_RULE_H_
#define AGG_SERVER_COMBINE_ADASUM_RULE_H_

#include "absl/types/span.h"
#include "server/combine/adasum.h"
#include "server/combine/combination_rule.h"

namespace agg {

// Horovod's Adasum (server/combine/README.md 3.1 and 3.2). The squared norm is
// the recursion's root, kappa its cancellation; on a compensated Gram matrix
// both come from the wider arithmetic.
class AdasumRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;

 private:
  AdasumSolver solver_;
};

// Adasum with sides that weigh by their number of nonzero rows
// (server/combine/README.md 3.3).
class AdasumCountedRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;

 private:
  AdasumSolver solver_;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ADASUM_RULE_H_
