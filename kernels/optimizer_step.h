// What one optimizer step needs to know besides the elements: plain values,
// shared by every backend. The formulas are in element_math.h.
#ifndef AGG_KERNELS_OPTIMIZER_STEP_H_
#define AGG_KERNELS_OPTIMIZER_STEP_H_

#include <cstdint>

namespace agg {

// none     master <- combined gradient (an all-reduce service)
// add      master <- master + lr * momentum(combined)  (deltas; with nesterov
//          momentum this is DiLoCo's outer optimizer)
// sgd      PyTorch's SGD: L2 weight decay, momentum, dampening 0, nesterov
// adam     PyTorch's Adam (L2 weight decay inside the gradient)
// adamw    PyTorch's AdamW (decoupled weight decay)
// adagrad  PyTorch's Adagrad (L2 weight decay, lr_decay 0)
// lars     You et al. 2017: sgd whose rate is multiplied by a trust ratio
// lamb     You et al. 2020: adamw direction times a trust ratio
enum class OptimizerKind : uint8_t {
  kNone,
  kAdd,
  kSgd,
  kAdam,
  kAdamW,
  kAdagrad,
  kLars,
  kLamb
};

// Hyperparameters of the job's optimizer, the same for every element.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  float momentum = 0.0f;  // add, sgd, lars; 0 keeps no momentum buffer
  bool nesterov = false;  // add, sgd, lars; REQUIRES: momentum > 0
  float beta1 = 0.9f;     // adam, adamw, lamb
  float beta2 = 0.999f;   // adam, adamw, lamb
  float epsilon = 1e-8f;  // adam, adamw, adagrad, lamb, lars
  float trust_coefficient = 0.001f;  // lars: eta of the paper
  float initial_accumulator = 0.0f;  // adagrad
};

// How many float32 state arrays of the parameters' size the optimizer keeps
// (momentum; or first and second moments; or the accumulator): 0, 1 or 2.
constexpr int OptimizerStateArrays(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kNone:
      return 0;
    case OptimizerKind::kAdd:
    case OptimizerKind::kSgd:
    case OptimizerKind::kLars:
      return options.momentum != 0.0f ? 1 : 0;
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
    case OptimizerKind::kLamb:
      return 2;
  }
  return 0;
}

// Whether the optimizer needs the Norms pass (per-tensor trust ratios).
constexpr bool OptimizerNeedsNorms(OptimizerKind kind) {
  return kind == OptimizerKind::kLars || kind == OptimizerKind::kLamb;
}

}  // namespace agg

#endif  // AGG_KERNELS_OPTIMIZER_STEP_H_
