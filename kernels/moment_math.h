// The formulas of the optimizers with two moments: adam, adamw and lamb. As
// element_math.h, which includes this file, says.
#ifndef AGG_KERNELS_MOMENT_MATH_H_
#define AGG_KERNELS_MOMENT_MATH_H_

#include <math.h>

#include "kernels/narrow_float.h"

namespace agg {

// What a step needs besides the elements, computed once per range in double
// and rounded once (step_constants.h).
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
