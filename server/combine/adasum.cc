// Keeps what the tree needs of its nodes, their inner products and the
// coefficients of their rows, and merges neighbours level by level.
#include "server/combine/adasum.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "server/base/dcheck.h"

namespace agg {

namespace {

// One run over the tree, level by level. H and K live in the upper triangles
// of dense arrays whose side is the number of nodes, made even by one zero row:
// Adasum(a, 0) = a exactly, so padding is the odd one passing up.
template <typename Real>
class Recursion {
 public:
  Recursion(const GramMatrix& gram, AdasumVariant variant,
            AdasumBuffers<Real>* buffers)
      : num_rows_(gram.num_rows()), variant_(variant), b_(*buffers) {
    Load(gram);
  }

  AdasumResult Run(absl::Span<double> weights) {
    for (int num_nodes = num_rows_; num_nodes > 1;) {
      UpdateKappa();
      FindFactors();
      ScaleRows();
      num_nodes = side_ / 2;
      FoldCounts(num_nodes);
      Fold(num_nodes, &b_.gram);
      for (Real& factor : b_.factors) factor = Abs(factor);
      Fold(num_nodes, &b_.absolute);
      side_ = Even(num_nodes);
      rows_per_node_ *= 2;
    }
    for (int i = 0; i < num_rows_; ++i) {
      weights[i] = static_cast<double>(b_.weights[i]);
    }
    return {std::max(static_cast<double>(b_.gram[0]), 0.0), kappa_};
  }

 private:
  static int Even(int n) { return n + n % 2; }
  static Real Abs(Real x) { return x < 0 ? -x : x; }

  void Load(const GramMatrix& gram) {
    side_ = Even(num_rows_);
    const size_t num_entries = static_cast<size_t>(side_) * side_;
    b_.gram.resize(num_entries);
    b_.absolute.resize(num_entries);
    b_.factors.assign(side_, 1);
    b_.weights.assign(num_rows_, 1);
    b_.counts.assign(side_, 0);
    for (int i = 0; i < num_rows_; ++i) {
      Real* out = &b_.gram[i * side_];
      Real* absolute = &b_.absolute[i * side_];
      for (int j = i; j < num_rows_; ++j) {
        out[j] = Entry<Real>(gram, i, j);
        absolute[j] = Abs(out[j]);
      }
      b_.counts[i] = out[i] >= kZeroNormSquared ? 1 : 0;
    }
    ZeroPadding(num_rows_, side_, &b_.gram);
    ZeroPadding(num_rows_, side_, &b_.absolute);
  }

  // Zeroes the row that was added to make the side even, if there is one.
  static void ZeroPadding(int num_nodes, int side, std::vector<Real>* matrix) {
    if (side == num_nodes) return;
    for (int i = 0; i < side; ++i) (*matrix)[i * side + num_nodes] = 0;
  }

  void UpdateKappa() {
    for (int node = 0; node < side_; ++node) {
      const Real norm = b_.gram[node * side_ + node];
      const Real absolute = b_.absolute[node * side_ + node];
      if (!(absolute > 0)) continue;
      const double kappa = norm > 0 ? static_cast<double>(absolute / norm)
                                    : std::numeric_limits<double>::infinity();
      kappa_ = std::max(kappa_, kappa);
    }
  }

  // 1 - dot/norm^2 * share; the plain share is a half. In this order of
  // operations it is Horovod's expression.
  static Real Factor(Real norm, Real dot, Real share) {
    return norm >= kZeroNormSquared ? 1 - dot / norm * share : Real{1};
  }

  void FindFactors() {
    for (int left = 0; left < side_; left += 2) {
      const int right = left + 1;
      Real left_share = 0.5;
      Real right_share = 0.5;
      const int count = b_.counts[left] + b_.counts[right];
      if (variant_ == AdasumVariant::kCounted && count > 0) {
        left_share = static_cast<Real>(b_.counts[left]) / count;
        right_share = static_cast<Real>(b_.counts[right]) / count;
      }
      const Real dot = b_.gram[left * side_ + right];
      b_.factors[left] = Factor(b_.gram[left * side_ + left], dot, left_share);
      b_.factors[right] =
          Factor(b_.gram[right * side_ + right], dot, right_share);
    }
  }

  void ScaleRows() {
    for (int i = 0; i < num_rows_; ++i) {
      b_.weights[i] *= b_.factors[i / rows_per_node_];
    }
  }

  void FoldCounts(int num_nodes) {
    for (int i = 0; i < num_nodes; ++i) {
      b_.counts[i] = b_.counts[2 * i] + b_.counts[2 * i + 1];
    }
    if (num_nodes % 2 == 1 && num_nodes > 1) b_.counts[num_nodes] = 0;
  }

  // C H C^T in place: entry (i, j) of the smaller matrix is written before any
  // later entry's inputs, which all lie behind it.
  void Fold(int num_nodes, std::vector<Real>* matrix) {
    const int new_side = Even(num_nodes);
    Real* h = matrix->data();
    const Real* f = b_.factors.data();
    for (int i = 0; i < num_nodes; ++i) {
      const Real* top = h + static_cast<size_t>(2 * i) * side_;
      const Real* bottom = top + side_;
      Real* out = h + static_cast<size_t>(i) * new_side;
      const Real a = f[2 * i];
      const Real b = f[2 * i + 1];
      const Real dot = top[2 * i + 1];
      const Real diagonal = a * (a * top[2 * i] + b * dot) +
                            b * (a * dot + b * bottom[2 * i + 1]);
      out[i] = diagonal;
      for (int j = i + 1; j < num_nodes; ++j) {
        const Real c = f[2 * j];
        const Real d = f[2 * j + 1];
        out[j] = a * (c * top[2 * j] + d * top[2 * j + 1]) +
                 b * (c * bottom[2 * j] + d * bottom[2 * j + 1]);
      }
    }
    if (num_nodes > 1) ZeroPadding(num_nodes, new_side, matrix);
  }

  const int num_rows_;
  const AdasumVariant variant_;
  AdasumBuffers<Real>& b_;
  int side_ = 0;
  int rows_per_node_ = 1;
  double kappa_ = 1.0;
};

}  // namespace

AdasumResult AdasumSolver::Solve(const GramMatrix& gram, AdasumVariant variant,
                                 absl::Span<double> weights) {
  AGG_DCHECK(weights.size() == static_cast<size_t>(gram.num_rows()));
  if (gram.compensated()) {
    return Recursion<__float128>(gram, variant, &compensated_).Run(weights);
  }
  return Recursion<double>(gram, variant, &plain_).Run(weights);
}

// Takes what a rule returns out of the solver's result.

namespace {

RuleResult ResultOfTree(const AdasumResult& adasum) {
  RuleResult result;
  result.norm_squared = adasum.norm_squared;
  result.kappa = adasum.kappa;
  return result;
}

}  // namespace

RuleResult AdasumRule::Combine(const RuleInput& input, RuleState* /*state*/,
                               absl::Span<double> coefficients) {
  return ResultOfTree(
      solver_.Solve(input.gram, AdasumVariant::kPlain, coefficients));
}

RuleResult AdasumCountedRule::Combine(const RuleInput& input,
                                      RuleState* /*state*/,
                                      absl::Span<double> coefficients) {
  return ResultOfTree(
      solver_.Solve(input.gram, AdasumVariant::kCounted, coefficients));
}

}  // namespace agg
