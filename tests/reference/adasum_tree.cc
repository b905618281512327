#include "tests/reference/adasum_tree.h"

#include <cfloat>
#include <cmath>

namespace agg {
namespace reference {
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
