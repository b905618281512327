// The rule geometric_median: the point from which the sum of the distances to
// all rows is least (server/combine/README.md 13.2).
#ifndef AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_H_
#define AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/geometric_median_options.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// The smoothed Weiszfeld algorithm of Pillutla, Kakade, Harchaoui (RFA), in
// coefficients instead of vectors, and with equal weights of the rows (a
// worker's number of examples is its own word):
//
//   w = 1/P;  nu = epsilon * the median of sqrt(G_ii), at least sqrt(DBL_MIN)
//   `iterations` times, or until no w_i changes by more than 4 eps w_i:
//     d_i = sqrt(max(w^T G w - 2 (G w)_i + G_ii, 0))       = ||w^T A - g_i||
//     w_i = 1 / max(nu, d_i), divided by their sum
//
// Coefficients are > 0 and sum to 1. P = 1: the row; P = 2: the mean, which
// is one of the points on the line between them that are all as good. More than
// half of the rows equal: those, to about nu. All zero: 1/P.
// No compensated Gram is needed: an error of d_i below nu moves the result by
// at most about eps ||g||^2 / nu. O(P^2) for each iteration.
// REQUIRES: finite entries; coefficients.size() == gram.num_rows() >= 1.
void GeometricMedianCoefficients(const GeometricMedianOptions& options,
                                 const GramMatrix& gram,
                                 absl::Span<double> coefficients);

class GeometricMedianRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_H_
