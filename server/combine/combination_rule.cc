// The norm of a combination from its coefficients and the Gram matrix, which
// every rule reports.
#include "server/combine/combination_rule.h"

#include <algorithm>

#include "server/base/dcheck.h"
#include "server/combine/gram_matrix.h"

namespace agg {
namespace {

// w^T G w in __float128, rounded once.
double WideQuadraticForm(const GramMatrix& gram, absl::Span<const double> w) {
  __float128 sum = 0;
  for (int i = 0; i < gram.num_rows(); ++i) {
    for (int j = 0; j < gram.num_rows(); ++j) {
      sum += Entry<__float128>(gram, i, j) * w[i] * w[j];
    }
  }
  return static_cast<double>(sum);
}

}  // namespace

RuleResult ResultOf(const GramMatrix& gram,
                    absl::Span<const double> coefficients) {
  AGG_DCHECK(coefficients.size() == static_cast<size_t>(gram.num_rows()));
  RuleResult result;
  const double norm_squared = gram.compensated()
                                  ? WideQuadraticForm(gram, coefficients)
                                  : QuadraticForm(gram, coefficients);
  result.norm_squared = std::max(norm_squared, 0.0);
  return result;
}

}  // namespace agg
