// Layer-wise trust ratios of LARS and LAMB from summed squared norms.
#ifndef AGG_SERVER_COORDINATOR_TRUST_RATIO_H_
#define AGG_SERVER_COORDINATOR_TRUST_RATIO_H_

#include "kernels/optimizer_step.h"

namespace agg {

// Squared norms of one tensor, summed over its slices in manifest order.
struct TensorNorms {
  double parameter_norm_squared = 0.0;
  double update_norm_squared = 0.0;  // kernels/backend.h, RangeNorms
};

// lars (You, Gitman, Ginsburg 2017, eq. 6):
//   trust_coefficient * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)
// lamb (You et al. 2020, algorithm 2, phi the identity): ||w|| / ||u||.
// 1 where ||w|| or the other norm is 0 (both papers' reference code), so that
// zero-initialised tensors learn; 1 for other optimizers.
float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_TRUST_RATIO_H_
