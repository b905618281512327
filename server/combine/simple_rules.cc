#include "server/combine/simple_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace agg {

void SumCoefficients(absl::Span<double> coefficients) {
  std::fill(coefficients.begin(), coefficients.end(), 1.0);
}

void MeanCoefficients(absl::Span<double> coefficients) {
  const double share = 1.0 / static_cast<double>(coefficients.size());
  std::fill(coefficients.begin(), coefficients.end(), share);
}

void WeightedMeanCoefficients(absl::Span<const double> weights,
                              absl::Span<double> coefficients) {
  double total = 0.0;
  for (const double weight : weights) total += weight;
  for (size_t i = 0; i < coefficients.size(); ++i) {
    coefficients[i] = weights[i] / total;
  }
}

void UnitMeanCoefficients(const GramMatrix& gram,
                          absl::Span<double> coefficients) {
  const int num_rows = gram.num_rows();
  for (int i = 0; i < num_rows; ++i) {
    const double norm = std::sqrt(gram(i, i));
    coefficients[i] = norm > 0.0 ? 1.0 / (num_rows * norm) : 0.0;
  }
}

}  // namespace agg
