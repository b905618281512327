#include "tests/reference/vectors.h"

#include <cmath>

namespace agg {
namespace reference {

Vector ToVector(const std::vector<double>& row) {
  return Vector(row.begin(), row.end());
}

Real Dot(const Vector& a, const Vector& b) {
  Real sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

Real NormSquared(const Vector& a) { return Dot(a, a); }

Real Norm(const Vector& a) { return std::sqrt(NormSquared(a)); }

Vector WeightedSum(const Rows& rows, const std::vector<double>& weights) {
  Vector sum(rows[0].size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < sum.size(); ++k) {
      sum[k] += static_cast<Real>(weights[i]) * rows[i][k];
    }
  }
  return sum;
}

Real Distance(const Vector& a, const Vector& b) {
  Vector difference(a.size());
  for (size_t k = 0; k < a.size(); ++k) difference[k] = a[k] - b[k];
  return Norm(difference);
}

}  // namespace reference
}  // namespace agg
