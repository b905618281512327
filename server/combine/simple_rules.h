// Rules whose coefficients need at most the Gram matrix's diagonal.
#ifndef AGG_SERVER_COMBINE_SIMPLE_RULES_H_
#define AGG_SERVER_COMBINE_SIMPLE_RULES_H_

#include "absl/types/span.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// All of these fill `coefficients`, one per row, P = coefficients.size() >= 1.
// Pure; O(P).

// w_i = 1.
void SumCoefficients(absl::Span<double> coefficients);

// w_i = 1/P.
void MeanCoefficients(absl::Span<double> coefficients);

// w_i = weights_i / sum(weights). REQUIRES: weights.size() == P, each > 0.
void WeightedMeanCoefficients(absl::Span<const double> weights,
                              absl::Span<double> coefficients);

// Mean of unit gradients (algorithms.md 4): w_i = 1 / (P * sqrt(G_ii)). A zero
// row has no direction: its coefficient is 0, and it still counts in P.
void UnitMeanCoefficients(const GramMatrix& gram,
                          absl::Span<double> coefficients);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_SIMPLE_RULES_H_
