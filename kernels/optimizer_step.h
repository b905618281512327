// What one optimizer step needs to know besides the elements: plain values,
// shared by every backend. optimizer_table.h lists the optimizers;
// element_math.h has their formulas.
#ifndef AGG_KERNELS_OPTIMIZER_STEP_H_
#define AGG_KERNELS_OPTIMIZER_STEP_H_

#include "kernels/optimizer_table.h"

namespace agg {

// Defaults that do not depend on the optimizer; epsilon's is in the table.
inline constexpr double kDefaultBeta1 = 0.9;
inline constexpr double kDefaultBeta2 = 0.999;
inline constexpr double kDefaultTrustCoefficient = 0.001;

// Hyperparameters of the job's optimizer, the same for every element. The
// table says which of them an optimizer uses; it ignores the others.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  float momentum = 0.0f;  // 0 keeps no momentum buffer
  bool nesterov = false;  // REQUIRES: momentum > 0
  float beta1 = static_cast<float>(kDefaultBeta1);
  float beta2 = static_cast<float>(kDefaultBeta2);
  float epsilon = 1e-8f;
  float trust_coefficient = static_cast<float>(kDefaultTrustCoefficient);
  float initial_accumulator = 0.0f;
};

constexpr bool HasMomentum(const OptimizerOptions& options) {
  return options.momentum != 0.0f && LineOf(options.kind).Uses("momentum");
}

// How many float32 state arrays of the parameters' size the optimizer keeps
// (momentum; or first and second moments; or the accumulator): 0, 1 or 2.
constexpr int OptimizerStateArrays(const OptimizerOptions& options) {
  return LineOf(options.kind).num_state_arrays + (HasMomentum(options) ? 1 : 0);
}

// What the first state array holds before the first step.
constexpr float InitialState0(const OptimizerOptions& options) {
  return LineOf(options.kind).Uses("initial_accumulator")
             ? options.initial_accumulator
             : 0.0f;
}

// Whether the optimizer needs the Norms pass (per-tensor trust ratios).
constexpr bool OptimizerNeedsNorms(OptimizerKind kind) {
  return LineOf(kind).trust_norm != TrustNorm::kNone;
}

}  // namespace agg

#endif  // AGG_KERNELS_OPTIMIZER_STEP_H_
