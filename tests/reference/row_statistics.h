// Vectors, means, Adasum's tree and statistics of gradient rows: everything in
// tests/reference is the literal definition on full vectors, in long double.
// None of it forms a Gram matrix: that is the trick under test.
#ifndef AGG_TESTS_REFERENCE_ROW_STATISTICS_H_
#define AGG_TESTS_REFERENCE_ROW_STATISTICS_H_

#include <cstddef>
#include <vector>

namespace agg {
namespace reference {

using Real = long double;
using Vector = std::vector<Real>;
using Rows = std::vector<std::vector<double>>;  // P rows of d elements

Vector ToVector(const std::vector<double>& row);
Real Dot(const Vector& a, const Vector& b);
Real NormSquared(const Vector& a);
Real Norm(const Vector& a);

// sum_i weights[i] * rows[i]. REQUIRES: rows not empty.
Vector WeightedSum(const Rows& rows, const std::vector<double>& weights);

// ||a - b||. REQUIRES: equal sizes.
Real Distance(const Vector& a, const Vector& b);

// REQUIRES everywhere: rows not empty.
Vector Sum(const Rows& rows);
Vector Mean(const Rows& rows);
Vector WeightedMean(const Rows& rows, const std::vector<double>& weights);
// Mean over all rows of g/||g||, a zero row contributing zero.
Vector UnitMean(const Rows& rows);

// All tensors' vectors times min(1, limit / global norm).
std::vector<Vector> ClipByGlobalNorm(std::vector<Vector> tensors, Real limit);

// ||AdasumTree(rows)||^2 / sum ||g_i||^2.
Real AdasumOrthogonality(const Rows& rows);
// sum ||g_i||^2 / ||sum g_i||^2.
Real Diversity(const Rows& rows);
// Mean cosine over pairs of nonzero rows.
Real MeanPairwiseCosine(const Rows& rows);

// Adasum's tree is Horovod's recursive pairing, of pairs
// (1 - dot/(2 asq)) a + (1 - dot/(2 bsq)) b; a side whose squared norm is below
// sqrt(DBL_MIN) has coefficient 1 (horovod/common/ops/adasum/adasum.h).
Vector AdasumPair(const Vector& a, const Vector& b);

// Level L = 1, 2, 4, ...: rank r meets r XOR L; a rank with no partner passes
// its vector up. REQUIRES: rows not empty.
Vector AdasumTree(const Rows& rows);

// Adasum's tree with each side weighted by its share of nonzero leaves.
Vector AdasumCountedTree(const Rows& rows);

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ROW_STATISTICS_H_
