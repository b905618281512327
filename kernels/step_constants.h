// The constants of one optimizer step, from the job's options and what a
// range's group and tensor say. Pure.
#ifndef AGG_KERNELS_STEP_CONSTANTS_H_
#define AGG_KERNELS_STEP_CONSTANTS_H_

#include <cstdint>

#include "kernels/element_math.h"
#include "kernels/optimizer_step.h"

namespace agg {

// Computes in double and rounds each constant once. Powers of beta are formed
// by repeated squaring, not by libm, so that every host gets the same bits.
// REQUIRES: step >= 1.
StepConstants MakeStepConstants(const OptimizerOptions& optimizer, int64_t step,
                                float learning_rate, float weight_decay,
                                float trust);

}  // namespace agg

#endif  // AGG_KERNELS_STEP_CONSTANTS_H_
