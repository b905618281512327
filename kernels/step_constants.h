// The constants of one optimizer step, from the job's options and what a
// range's group and tensor say. Pure.
#ifndef AGG_KERNELS_STEP_CONSTANTS_H_
#define AGG_KERNELS_STEP_CONSTANTS_H_

#include <stdint.h>

#include "kernels/optimizer_step.h"

namespace agg {

// What a formula (element_math.h) needs besides the elements.
struct StepConstants {
  float rate = 0.0f;  // learning rate; lars, lamb: times the trust
  float negative_rate = 0.0f;
  float adam_rate = 0.0f;  // -learning rate / (1 - beta1^step)
  float decay = 0.0f;      // weight decay
  float shrink = 1.0f;     // adamw: 1 - learning rate * weight decay
  float momentum = 0.0f;
  float one_minus_beta1 = 0.0f;
  float beta2 = 0.0f;
  float one_minus_beta2 = 0.0f;
  float inverse_bias1 = 1.0f;       // 1 / (1 - beta1^step)
  float inverse_root_bias2 = 1.0f;  // 1 / sqrt(1 - beta2^step)
  float epsilon = 0.0f;
};

// Computes in double and rounds each constant once. Powers of beta are formed
// by repeated squaring, not by libm, so that every host gets the same bits.
// REQUIRES: step >= 1.
StepConstants MakeStepConstants(const OptimizerOptions& optimizer, int64_t step,
                                float learning_rate, float weight_decay,
                                float trust);

}  // namespace agg

#endif  // AGG_KERNELS_STEP_CONSTANTS_H_
