// The rule adacons: unit gradients, weighted by how far each agrees with the
// mean (server/combine/README.md 4).
#ifndef AGG_SERVER_COMBINE_ADACONS_H_
#define AGG_SERVER_COMBINE_ADACONS_H_

#include <vector>

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/gram_matrix.h"

namespace agg {

struct AdaconsResult {
  bool fell_back = false;  // the guard fired: the coefficients are the mean's
  // What the coefficients' sums lose (server/combine/README.md 4.6), >= 1.
  double kappa = 1.0;
};

// n_i = sqrt(G_ii) + eps, alpha_i = (G 1)_i / (n_i P); the momentum averages
// the sorted alphas (ties are broken by row), which go back to rows and are
// normalised to sum 1; w_i = alpha'_i / n_i. Unsort: scatter writes each to the
// row it came from; gather reads the momentum at the sort's index, as the
// authors' program does, and so mostly gives a row another row's alpha.
// Rescale: none; mean_norm multiplies by the mean of ||g_i||; match_mean
// multiplies by ||mean|| / ||result||.
//
// `momentum` holds the averaged alphas in ascending order; empty before the
// first round.
//
// When the guard fires the coefficients are the mean's (never rescaled) and
// *momentum is as before. It fires when anything is not finite, when
// sum(alpha') <= 1e-6 * sum|alpha'| (the direction would flip; all rows zero is
// such a case), or when match_mean meets a zero result.
//
// When P differs from the momentum's length, the momentum is first resampled:
// the new k-th entry is the old one at quantile (k + 1/2) / P, linearly
// interpolated, held at the ends. A zero row keeps w_i = alpha'_i / eps, which
// multiplies zeros. P = 1 gives g / (||g|| + eps).
//
// In double for a plain Gram: 1e-14 on ordinary rows, about 1e-16 kappa where
// they cancel. In __float128 from hi + lo for a compensated one, where
// coefficients are rounded to double at the end.
// REQUIRES: finite entries; coefficients.size() == gram.num_rows() >= 1.
AdaconsResult AdaconsCoefficients(const AdaconsOptions& options,
                                  const GramMatrix& gram,
                                  std::vector<double>* momentum,
                                  absl::Span<double> coefficients);

// The resampling above, on its own. REQUIRES: momentum not empty.
std::vector<double> ResampleMomentum(const std::vector<double>& momentum,
                                     int num_rows);

// The rule: AdaconsCoefficients with the sorted momentum as its state.
class AdaconsRule : public CombinationRule {
 public:
  RuleResult Combine(const RuleInput& input, RuleState* state,
                     absl::Span<double> coefficients) override;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ADACONS_H_
