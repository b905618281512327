// The norm of a combination from its coefficients and the Gram matrix, which
// every rule reports.
#include "server/combine/combination_rule.h"

#include <algorithm>

#include "server/base/dcheck.h"
#include "server/combine/gram_matrix.h"

namespace agg {

RuleResult ResultOf(const GramMatrix& gram,
                    absl::Span<const double> coefficients) {
  AGG_DCHECK(coefficients.size() == static_cast<size_t>(gram.num_rows()));
  RuleResult result;
  result.norm_squared = std::max(QuadraticForm(gram, coefficients), 0.0);
  return result;
}

}  // namespace agg
