#include "tests/reference/row_statistics.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/adasum_tree.h"

namespace agg {
namespace reference {
namespace {

Real SumOfSquares(const Rows& rows) {
  Real sum = 0;
  for (const std::vector<double>& row : rows) sum += NormSquared(ToVector(row));
  return sum;
}

}  // namespace

Vector Sum(const Rows& rows) {
  return WeightedSum(rows, std::vector<double>(rows.size(), 1.0));
}

Vector Mean(const Rows& rows) {
  Vector mean = Sum(rows);
  for (Real& value : mean) value /= rows.size();
  return mean;
}

Vector WeightedMean(const Rows& rows, const std::vector<double>& weights) {
  Vector mean = WeightedSum(rows, weights);
  Real total = 0;
  for (const double weight : weights) total += weight;
  for (Real& value : mean) value /= total;
  return mean;
}

Vector UnitMean(const Rows& rows) {
  Vector mean(rows[0].size(), 0);
  for (const std::vector<double>& row : rows) {
    const Vector vector = ToVector(row);
    const Real norm = Norm(vector);
    if (norm == 0) continue;
    for (size_t k = 0; k < mean.size(); ++k) {
      mean[k] += vector[k] / norm / rows.size();
    }
  }
  return mean;
}

std::vector<Vector> ClipByGlobalNorm(std::vector<Vector> tensors, Real limit) {
  Real squared = 0;
  for (const Vector& tensor : tensors) squared += NormSquared(tensor);
  const Real norm = std::sqrt(squared);
  if (norm <= limit) return tensors;
  for (Vector& tensor : tensors) {
    for (Real& value : tensor) value *= limit / norm;
  }
  return tensors;
}

Real AdasumOrthogonality(const Rows& rows) {
  return NormSquared(AdasumTree(rows)) / SumOfSquares(rows);
}

Real Diversity(const Rows& rows) {
  return SumOfSquares(rows) / NormSquared(Sum(rows));
}

Real MeanPairwiseCosine(const Rows& rows) {
  Real sum = 0;
  int num_pairs = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = i + 1; j < rows.size(); ++j) {
      const Vector a = ToVector(rows[i]);
      const Vector b = ToVector(rows[j]);
      if (Norm(a) == 0 || Norm(b) == 0) continue;
      sum += Dot(a, b) / (Norm(a) * Norm(b));
      ++num_pairs;
    }
  }
  return sum / num_pairs;
}

}  // namespace reference
}  // namespace agg
