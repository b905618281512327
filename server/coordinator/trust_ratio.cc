// Two formulas; the header says which optimizer takes which one, and why.
#include "server/coordinator/trust_ratio.h"

#include <cfloat>
#include <cmath>

#include "kernels/optimizer_table.h"

namespace agg {
namespace {

// An update so small that the ratio does not fit float32 counts as 0, where the
// ratio is 1: infinity times it would not be finite.
float InFloat(double ratio) {
  return ratio <= FLT_MAX ? static_cast<float>(ratio) : 1.0f;
}

}  // namespace

float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms) {
  const double parameter = std::sqrt(norms.parameter_norm_squared);
  const double update = std::sqrt(norms.update_norm_squared);
  if (!(parameter > 0.0) || !(update > 0.0)) return 1.0f;
  switch (LineOf(optimizer.kind).trust_norm) {
    case TrustNorm::kNone:
      return 1.0f;
    case TrustNorm::kGradient:
      return InFloat(static_cast<double>(optimizer.trust_coefficient) *
                     parameter /
                     (update + weight_decay * parameter +
                      static_cast<double>(optimizer.epsilon)));
    case TrustNorm::kDirection:
      return InFloat(parameter / update);
  }
  return 1.0f;
}

}  // namespace agg
