// Vectors and sums of the reference implementations: everything here is the
// literal definition on full vectors, in long double. None of tests/reference
// forms a Gram matrix: that is the trick under test.
#ifndef AGG_TESTS_REFERENCE_VECTORS_H_
#define AGG_TESTS_REFERENCE_VECTORS_H_

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

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_VECTORS_H_
