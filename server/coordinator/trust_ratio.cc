#include "server/coordinator/trust_ratio.h"

#include <cmath>

namespace agg {

float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms) {
  const double parameter = std::sqrt(norms.parameter_norm_squared);
  const double update = std::sqrt(norms.update_norm_squared);
  if (!(parameter > 0.0) || !(update > 0.0)) return 1.0f;
  if (optimizer.kind == OptimizerKind::kLars) {
    return static_cast<float>(static_cast<double>(optimizer.trust_coefficient) *
                              parameter /
                              (update + weight_decay * parameter +
                               static_cast<double>(optimizer.epsilon)));
  }
  if (optimizer.kind == OptimizerKind::kLamb) {
    return static_cast<float>(parameter / update);
  }
  return 1.0f;
}

}  // namespace agg
