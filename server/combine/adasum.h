// Adasum's coefficients from a Gram matrix: the recursion of
// server/combine/README.md 3.4, equal to Horovod's pairwise tree on the vectors
// themselves; and the rules adasum and adasum_counted.
#ifndef AGG_SERVER_COMBINE_ADASUM_H_
#define AGG_SERVER_COMBINE_ADASUM_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/gram_matrix.h"

namespace agg {

enum class AdasumVariant : uint8_t {
  // Both sides weigh the same (server/combine/README.md 3.1).
  kPlain,
  // Sides weigh by their numbers of nonzero rows
  // (server/combine/README.md 3.3).
  kCounted,
};

struct AdasumResult {
  // ||w^T A||^2, the recursion's root; >= 0. Rounding can leave it a little
  // above the trace of G, which bounds it.
  double norm_squared = 0.0;
  // Cancellation: max over nodes of K_jj/H_jj (server/combine/README.md 3.4),
  // >= 1; +infinity if a node with K_jj > 0 came out as H_jj <= 0. Rows that
  // are all zero have 1.
  double kappa = 1.0;
};

// Working memory of one value type; see AdasumSolver.
template <typename Real>
struct AdasumBuffers {
  std::vector<Real> gram;      // upper triangle of H
  std::vector<Real> absolute;  // upper triangle of K
  std::vector<Real> factors;   // of this level's nodes
  std::vector<Real> weights;   // of the rows so far
  std::vector<int> counts;     // nonzero rows below this level's nodes
};

// Reuses its memory from call to call; not thread-safe. The result depends on
// the arguments alone.
class AdasumSolver {
 public:
  // The tree pairs adjacent rows; an odd one passes up unchanged, so any P >= 1
  // works. A squared norm below T = sqrt(DBL_MIN) counts as zero and leaves its
  // partner unchanged (coefficient 1 for both). O(P^2). In double for a plain
  // Gram; in __float128 from hi + lo for a compensated one, where coefficients
  // are rounded to double at the end.
  // REQUIRES: finite entries; weights.size() == gram.num_rows().
  AdasumResult Solve(const GramMatrix& gram, AdasumVariant variant,
                     absl::Span<double> weights);

 private:
  AdasumBuffers<double> plain_;
  AdasumBuffers<__float128> compensated_;
};

// The rules adasum and adasum_counted: the solver behind the interface of
// rules. The solver is a class of its own, since orthogonality needs it
// whatever the rule. This is Horovod's Adasum (server/combine/README.md 3.1 and
// 3.2). The squared norm is the recursion's root, kappa its cancellation; on a
// compensated Gram matrix both come from the wider arithmetic.
class AdasumRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;

 private:
  AdasumSolver solver_;
};

// Adasum with sides that weigh by their number of nonzero rows
// (server/combine/README.md 3.3).
class AdasumCountedRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;

 private:
  AdasumSolver solver_;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ADASUM_H_
