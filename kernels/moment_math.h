// The formulas of the optimizers with two moments: adam, adamw and lamb. A
// part of element_math.h, which includes it and says what a formula is.
#ifndef AGG_KERNELS_MOMENT_MATH_H_
#define AGG_KERNELS_MOMENT_MATH_H_

#include <math.h>

#include "kernels/narrow_float.h"
#include "kernels/step_constants.h"

namespace agg {

// m <- lerp(m, g, 1 - beta1); v <- beta2 v + (1 - beta2) g^2. Returns the
// denominator sqrt(v / (1 - beta2^step)) + epsilon.
AGG_HOST_DEVICE float StepMoments(const StepConstants& c, float g, float* m,
                                  float* v) {
  *m = fmaf(c.one_minus_beta1, g - *m, *m);
  *v = fmaf(c.one_minus_beta2, g * g, c.beta2 * *v);
  return fmaf(sqrtf(*v), c.inverse_root_bias2, c.epsilon);
}

struct AdamFormula {
  static constexpr int kStateArrays = 2;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* m, float* v) {
    const float denominator = StepMoments(c, fmaf(c.decay, *p, g), m, v);
    *p = fmaf(c.adam_rate, *m / denominator, *p);
  }
};

struct AdamWFormula {
  static constexpr int kStateArrays = 2;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* m, float* v) {
    const float denominator = StepMoments(c, g, m, v);
    *p = fmaf(c.adam_rate, *m / denominator, *p * c.shrink);
  }
};

struct LambFormula {
  static constexpr int kStateArrays = 2;
  // What the trust ratio divides by: m^ / (sqrt(v^) + epsilon) + decay * p.
  AGG_HOST_DEVICE static float Direction(const StepConstants& c, float g,
                                         float p, float* m, float* v) {
    const float denominator = StepMoments(c, g, m, v);
    return fmaf(c.decay, p, *m * c.inverse_bias1 / denominator);
  }
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* m, float* v) {
    *p = fmaf(c.negative_rate, Direction(c, g, *p, m, v), *p);
  }
};

}  // namespace agg

#endif  // AGG_KERNELS_MOMENT_MATH_H_
