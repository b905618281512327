// The rule geometric_median: the point from which the sum of the distances to
// all rows is least (server/combine/README.md 13.2).
#ifndef AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_H_
#define AGG_SERVER_COMBINE_GEOMETRIC_MEDIAN_H_

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// The smoothed Weiszfeld algorithm of Pillutla, Kakade, Harchaoui (RFA), in
// coefficients instead of vectors, and with equal weights of the rows (a
// worker's number of examples is its own word):
//
//   nu = epsilon * the median of sqrt(G_ii), at least sqrt(DBL_MIN)
//   r_i = the least radius around row i that has more than P/2 rows, itself
//         among them
//   w_i = 1 / max(nu, r_i), divided by their sum
//   `iterations` times, or until no w_i changes by more than 4 eps w_i:
//     d_i = sqrt(max(w^T G w - 2 (G w)_i + G_ii, 0))       = ||w^T A - g_i||
//     w_i = 1 / max(nu, d_i), divided by their sum
//
// Coefficients are > 0 and sum to 1. P = 1: the row; P = 2: the mean, which
// is one of the points on the line between them that are all as good. More than
// half of the rows equal: those, to about nu. All zero: 1/P.
// No compensated Gram is needed: an error of d_i below nu moves the result by
// at most about eps ||g||^2 / nu. O(P^2) for each iteration, and to begin.
//
// RFA begins at the mean, which one long row carries off by any distance, and
// each step brings it back by f / (P - f) only. With f < P/2 rows anywhere, and
// the others within r of a point: r_i <= 2 r for these, and >= D - r for a row
// that is D from the point. So a row with D > 2 r carries the start off by at
// most 2 max(2 r, nu) / (P - f), however long it is.
//
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
