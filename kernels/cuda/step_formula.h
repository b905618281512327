// Which formula of element_math.h an optimizer's options mean, as a number
// that a kernel can switch on.
#ifndef AGG_KERNELS_CUDA_STEP_FORMULA_H_
#define AGG_KERNELS_CUDA_STEP_FORMULA_H_

#include <stdint.h>

#include "kernels/optimizer_step.h"

namespace agg::cuda {

enum class StepFormula : int32_t {
  kNone,
  kAdd,
  kAddMomentum,
  kAddNesterov,
  kSgd,
  kSgdMomentum,
  kSgdNesterov,
  kAdam,
  kAdamW,
  kAdagrad,
  kLarsMomentum,
  kLarsNesterov,
  kLamb,
};

inline StepFormula ChooseFormula(const OptimizerOptions& optimizer) {
  const bool momentum = optimizer.momentum != 0.0f;
  const bool nesterov = momentum && optimizer.nesterov;
  switch (optimizer.kind) {
    case OptimizerKind::kNone:
      return StepFormula::kNone;
    case OptimizerKind::kAdd:
      return nesterov   ? StepFormula::kAddNesterov
             : momentum ? StepFormula::kAddMomentum
                        : StepFormula::kAdd;
    case OptimizerKind::kSgd:
      return nesterov   ? StepFormula::kSgdNesterov
             : momentum ? StepFormula::kSgdMomentum
                        : StepFormula::kSgd;
    case OptimizerKind::kAdam:
      return StepFormula::kAdam;
    case OptimizerKind::kAdamW:
      return StepFormula::kAdamW;
    case OptimizerKind::kAdagrad:
      return StepFormula::kAdagrad;
    case OptimizerKind::kLars:  // without momentum: sgd at the trusted rate
      return nesterov   ? StepFormula::kLarsNesterov
             : momentum ? StepFormula::kLarsMomentum
                        : StepFormula::kSgd;
    case OptimizerKind::kLamb:
      return StepFormula::kLamb;
  }
  return StepFormula::kNone;
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_STEP_FORMULA_H_
