// Two formulas; the header says which optimizer takes which one, and why.
#include "server/coordinator/trust_ratio.h"

#include <cmath>

#include "kernels/optimizer_table.h"

namespace agg {

float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms) {
  const double parameter = std::sqrt(norms.parameter_norm_squared);
  const double update = std::sqrt(norms.update_norm_squared);
  if (!(parameter > 0.0) || !(update > 0.0)) return 1.0f;
  switch (LineOf(optimizer.kind).trust_norm) {
    case TrustNorm::kNone:
      return 1.0f;
    case TrustNorm::kGradient:
      return static_cast<float>(
          static_cast<double>(optimizer.trust_coefficient) * parameter /
          (update + weight_decay * parameter +
           static_cast<double>(optimizer.epsilon)));
    case TrustNorm::kDirection:
      return static_cast<float>(parameter / update);
  }
  return 1.0f;
}

}  // namespace agg
