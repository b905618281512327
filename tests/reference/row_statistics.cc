#include "tests/reference/row_statistics.h"

#include <algorithm>
#include <cfloat>
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

namespace {

// A subtree's result and how many of its leaves were not zero.
struct Node {
  Vector value;
  int num_nonzero = 0;
};

Vector Pair(const Vector& a, const Vector& b, Real a_share, Real b_share) {
  const Real threshold = std::sqrt(static_cast<Real>(DBL_MIN));
  const Real dot = Dot(a, b);
  const Real asq = NormSquared(a);
  const Real bsq = NormSquared(b);
  const Real acoeff = asq >= threshold ? 1 - dot / asq * a_share : 1;
  const Real bcoeff = bsq >= threshold ? 1 - dot / bsq * b_share : 1;
  Vector out(a.size());
  for (size_t k = 0; k < a.size(); ++k) out[k] = acoeff * a[k] + bcoeff * b[k];
  return out;
}

Vector Tree(const Rows& rows, bool counted) {
  std::vector<Node> ranks;
  for (const std::vector<double>& row : rows) {
    Node node{ToVector(row), 0};
    node.num_nonzero = NormSquared(node.value) > 0 ? 1 : 0;
    ranks.push_back(node);
  }
  const size_t num_ranks = ranks.size();
  for (size_t level = 1; level < num_ranks; level *= 2) {
    for (size_t left = 0; left < num_ranks; left += 2 * level) {
      const size_t right = left ^ level;
      if (right >= num_ranks) continue;
      const int count = ranks[left].num_nonzero + ranks[right].num_nonzero;
      Real left_share = 0.5L;
      if (counted && count > 0) {
        left_share = static_cast<Real>(ranks[left].num_nonzero) / count;
      }
      ranks[left].value = Pair(ranks[left].value, ranks[right].value,
                               left_share, 1 - left_share);
      ranks[left].num_nonzero = count;
    }
  }
  return ranks[0].value;
}

}  // namespace

Vector AdasumPair(const Vector& a, const Vector& b) {
  return Pair(a, b, 0.5L, 0.5L);
}

Vector AdasumTree(const Rows& rows) { return Tree(rows, false); }

Vector AdasumCountedTree(const Rows& rows) { return Tree(rows, true); }

}  // namespace reference
}  // namespace agg
