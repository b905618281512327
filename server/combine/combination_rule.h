// One rule on one segment: Gram matrix and state in, coefficients out.
#ifndef AGG_SERVER_COMBINE_COMBINATION_RULE_H_
#define AGG_SERVER_COMBINE_COMBINATION_RULE_H_

#include "absl/types/span.h"
#include "server/combine/adacons.h"
#include "server/combine/adasum.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"

namespace agg {

struct RuleResult {
  double norm_squared = 0.0;  // of the combination, >= 0
  double kappa = 1.0;         // of the rule's recursion; 1 where it has none
  bool adacons_fallback = false;  // the guard fired: the mean was taken
};

// Whether the rule runs Adasum's recursion, which a cancellation (kappa) can
// spoil and a compensated Gram repairs.
bool IsAdasum(Rule rule);

// Fills `coefficients` (P) for the compacted rows of `gram`. `examples` holds
// the rows' numbers of examples, for weighted_mean. `state` is read and written
// by adacons alone; `solver` lends its memory. The squared norm of an Adasum is
// its recursion's root, of any other rule w^T G w.
// REQUIRES: finite entries; P = gram.num_rows() >= 1.
RuleResult ApplyRule(const RuleOptions& options, const GramMatrix& gram,
                     absl::Span<const double> examples, AdaconsState* state,
                     AdasumSolver* solver, absl::Span<double> coefficients);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_COMBINATION_RULE_H_
