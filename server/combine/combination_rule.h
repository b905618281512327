// The interface of a combination rule: Gram matrix in, coefficients out.
#ifndef AGG_SERVER_COMBINE_COMBINATION_RULE_H_
#define AGG_SERVER_COMBINE_COMBINATION_RULE_H_

#include "absl/types/span.h"
#include "server/combine/adacons_options.h"
#include "server/combine/geometric_median_options.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/krum_options.h"
#include "server/combine/rule_state.h"

namespace agg {

// What a rule sees of one segment (one tensor, or all of them): a snapshot.
// Rows with non-finite values are left out, the others are in rank order and
// without their loss scale.
struct RuleInput {
  const GramMatrix& gram;             // P x P, finite entries, P >= 1
  absl::Span<const double> examples;  // P; each > 0
  // The job's choices, each for the rules with its trait alone.
  const AdaconsOptions& adacons;
  const KrumOptions& krum;
  const GeometricMedianOptions& geometric_median;
};

struct RuleResult {
  double norm_squared = 0.0;  // of the combination, ||w^T A||^2 >= 0
  // Cancellation in the rule's own arithmetic, >= 1: how many times the largest
  // term of a sum exceeds the sum (server/combine/README.md 3.4). 1 for a rule
  // without the trait kMeasuresCancellation.
  double kappa = 1.0;
  bool fell_back = false;  // its guard chose the mean instead
  // The combination is one of unit vectors: it does not grow with the rows.
  bool of_unit_rows = false;
  // There are fewer rows than the rule's guarantee needs: it has assumed that
  // fewer of them are byzantine than the job says.
  bool short_of_rows = false;
};

// A rule decides how much each row counts. Its coefficients depend on the
// arguments alone: the same input and state give the same bits on every machine
// and in every call. So a rule
//  - performs no I/O, reads no clock and draws no random numbers;
//  - never fails: each degenerate input (zero rows, P = 1, rows that cancel)
//    has a policy that the rule's header states;
//  - remembers nothing between calls. What must outlive a round belongs in
//    RuleState, which the caller keeps, resets when the rule or its options
//    change, and stores. What only saves time, as scratch memory, may be a
//    member.
//
// Objects are made by the table (rule_table.h), used by one thread and cheap to
// make again.
class CombinationRule {
 public:
  virtual ~CombinationRule() = default;

  // Fills `coefficients`, one per row of the input, and advances *state. A
  // rule whose guard fires leaves *state as it was.
  // REQUIRES: coefficients.size() == input.gram.num_rows(); *state is empty or
  // was left by this rule with the same options (P may have changed since).
  virtual RuleResult Combine(const RuleInput& input, RuleState* state,
                             absl::Span<double> coefficients) = 0;
};

// The result of a rule that only chose `coefficients`: norm_squared is
// w^T G w, which rounding must not leave below 0. O(P^2).
RuleResult ResultOf(const GramMatrix& gram,
                    absl::Span<const double> coefficients);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_COMBINATION_RULE_H_
