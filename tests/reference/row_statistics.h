// Means, clipping and statistics of gradient rows by their definitions.
#ifndef AGG_TESTS_REFERENCE_ROW_STATISTICS_H_
#define AGG_TESTS_REFERENCE_ROW_STATISTICS_H_

#include <vector>

#include "tests/reference/vectors.h"

namespace agg {
namespace reference {

// REQUIRES everywhere: rows not empty.
Vector Sum(const Rows& rows);
Vector Mean(const Rows& rows);
Vector WeightedMean(const Rows& rows, const std::vector<double>& weights);
// Mean over all rows of g/||g||, a zero row contributing zero.
Vector UnitMean(const Rows& rows);

// All tensors' vectors times min(1, limit / global norm).
std::vector<Vector> ClipByGlobalNorm(std::vector<Vector> tensors, Real limit);

// ||Adasum(rows)||^2 / sum ||g_i||^2.
Real AdasumOrthogonality(const Rows& rows);
// sum ||g_i||^2 / ||sum g_i||^2.
Real Diversity(const Rows& rows);
// Mean cosine over pairs of nonzero rows.
Real MeanPairwiseCosine(const Rows& rows);

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ROW_STATISTICS_H_
