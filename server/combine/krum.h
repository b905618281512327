// The rules krum and multi_krum: the rows that have the nearest neighbours
// (server/combine/README.md 13.1).
#ifndef AGG_SERVER_COMBINE_KRUM_H_
#define AGG_SERVER_COMBINE_KRUM_H_

#include <vector>

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// Blanchard et al. 2017, with f byzantine rows among P:
//
//   D_ij    = ||g_i - g_j||^2 = (G_ii - G_ij) + (G_jj - G_ij), at least 0
//   score_i = sum of the n = P - f - 2 smallest D_ij, j != i
//
// P < 2 f + 3: f is taken as floor((P - 3) / 2), at least 0; if that is less
// than f, the result says short_of_rows. n is at least 1 (0 for P = 1). Equal
// scores go by row.
struct KrumScores {
  std::vector<int> order;  // rows, the least score first
  int byzantine_rows = 0;  // f, as it was taken
  // max over i of K_i / max(score_i, limit), at least 1: K_i sums the sizes
  // G_ii + G_jj + 2 |G_ij| of the terms of score_i, and `limit` is the largest
  // score that is selected. Scores are right to eps * kappa where it matters.
  // Distances of exactly 0 are taken for those of equal rows, and do not count.
  double kappa = 1.0;
};

// Scores of which the least `selected` are used; 0: P - f, f as taken.
// A compensated matrix is evaluated in __float128. O(P^2 log P).
// REQUIRES: finite entries, P >= 1, byzantine_workers >= 0, selected >= 0.
KrumScores ComputeKrumScores(const GramMatrix& gram, int byzantine_workers,
                             int selected);

// w = 1 for the row of the least score, else 0. P = 1, equal rows, zero rows:
// the first of the least.
class KrumRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

// w = 1/m for the m rows of the least scores, else 0; m = `selected`, at most
// P - f.
class MultiKrumRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_KRUM_H_
