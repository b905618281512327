// Statistics of a set of gradient rows, all from their Gram matrix
// (server/combine/README.md 7). Pure. REQUIRES everywhere: finite entries.
#ifndef AGG_SERVER_COMBINE_GRAM_STATS_H_
#define AGG_SERVER_COMBINE_GRAM_STATS_H_

#include <vector>

#include "absl/types/span.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// G w: the inner product of each row with the combination. O(P^2). Each sum is
// formed in the order of the columns.
// REQUIRES: w.size() == gram.num_rows().
std::vector<double> Product(const GramMatrix& gram, absl::Span<const double> w);

// 1^T G 1 = ||sum of rows||^2.
double SumOfEntries(const GramMatrix& gram);

// u^T G w: the inner product of the two combinations. O(P^2).
// REQUIRES: u.size() == w.size() == gram.num_rows().
double BilinearForm(const GramMatrix& gram, absl::Span<const double> u,
                    absl::Span<const double> w);
// w^T G w, the squared norm of the combination; rounding may leave it < 0.
double QuadraticForm(const GramMatrix& gram, absl::Span<const double> w);

// Orthogonality (server/combine/README.md 3.6) from ||Adasum||^2 and trace G,
// in [0, 1] (clamped there: the bound is proved, rounding may pass it). NaN if
// the trace is 0.
double Orthogonality(double adasum_norm_squared, double trace);

// tr G / 1^T G 1, in [1/P, inf]; +infinity when the rows cancel, NaN when they
// are all zero.
double GradientDiversity(const GramMatrix& gram);

// Cosines between rows that are not zero. NaN where there is no pair.
struct PairwiseCosines {
  std::vector<double> row_means;  // per row: to the other nonzero rows
  double mean = 0.0;              // over pairs i != j
  double min = 0.0;
};
PairwiseCosines ComputeCosines(const GramMatrix& gram);

// Eigenvalues of the (symmetric) matrix, ascending, by cyclic Jacobi rotations.
std::vector<double> Eigenvalues(const GramMatrix& gram);

// exp(-sum p ln p), p = eigenvalue / trace: 1 for parallel rows, P for
// orthogonal ones of equal norm. NaN if the trace is 0.
double EffectiveRank(const GramMatrix& gram);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_GRAM_STATS_H_
