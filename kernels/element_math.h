// The optimizers' formulas for one element, host and device.
//
// Each formula is a struct: `kStateArrays`, and Apply(constants, gradient,
// parameter, state0, state1) that steps one element in float32. A formula does
// not use pointers to state that it does not have. The table of optimizers
// (optimizer_table.h) says which formula each one uses. Every fused
// multiply-add is written out, and only +, *, /, sqrtf and fmaf are used, all
// correctly rounded, so that every compiler and device gives the same bits.
//
// Sources: PyTorch 2 (torch/optim/{sgd,adam,adamw,adagrad}.py, single-tensor
// forms, dampening 0, amsgrad off); LARS: You, Gitman, Ginsburg 2017
// (arXiv 1708.03888), Algorithm 1, where the rate is inside the momentum;
// LAMB: You et al. 2020 (arXiv 1904.00962), Algorithm 2, phi the identity;
// outer Nesterov momentum: DiLoCo (arXiv 2311.08105), PyTorch's SGD form.
// PyTorch divides by the bias corrections; here their reciprocals multiply,
// which differs by at most an ulp of the intermediate value.
#ifndef AGG_KERNELS_ELEMENT_MATH_H_
#define AGG_KERNELS_ELEMENT_MATH_H_

#include <math.h>

#include "kernels/narrow_float.h"
#include "kernels/step_constants.h"

namespace agg {

// The moments of adam, adamw and lamb.
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

// buffer <- momentum * buffer + g. Returns the direction to step along.
template <bool kNesterov>
AGG_HOST_DEVICE float StepMomentum(const StepConstants& c, float g,
                                   float* buffer) {
  *buffer = fmaf(c.momentum, *buffer, g);
  return kNesterov ? fmaf(c.momentum, *buffer, g) : *buffer;
}

struct NoneFormula {
  static constexpr int kStateArrays = 0;
  AGG_HOST_DEVICE static void Apply(const StepConstants&, float g, float* p,
                                    float*, float*) {
    *p = g;
  }
};

struct AddFormula {
  static constexpr int kStateArrays = 0;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float*, float*) {
    *p = fmaf(c.rate, g, *p);
  }
};

template <bool kNesterov>
struct AddMomentumFormula {
  static constexpr int kStateArrays = 1;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* buffer, float*) {
    *p = fmaf(c.rate, StepMomentum<kNesterov>(c, g, buffer), *p);
  }
};

struct SgdFormula {
  static constexpr int kStateArrays = 0;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float*, float*) {
    *p = fmaf(c.negative_rate, fmaf(c.decay, *p, g), *p);
  }
};

template <bool kNesterov>
struct SgdMomentumFormula {
  static constexpr int kStateArrays = 1;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* buffer, float*) {
    const float decayed = fmaf(c.decay, *p, g);
    const float direction = StepMomentum<kNesterov>(c, decayed, buffer);
    *p = fmaf(c.negative_rate, direction, *p);
  }
};

struct AdagradFormula {
  static constexpr int kStateArrays = 1;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* sum, float*) {
    const float decayed = fmaf(c.decay, *p, g);
    *sum = fmaf(decayed, decayed, *sum);
    *p = fmaf(c.negative_rate, decayed / (sqrtf(*sum) + c.epsilon), *p);
  }
};

// The buffer holds steps, not gradients: rates of the past stay in it.
template <bool kNesterov>
struct LarsMomentumFormula {
  static constexpr int kStateArrays = 1;
  AGG_HOST_DEVICE static void Apply(const StepConstants& c, float g, float* p,
                                    float* buffer, float*) {
    const float step = c.rate * fmaf(c.decay, *p, g);
    *p = *p - StepMomentum<kNesterov>(c, step, buffer);
  }
};

}  // namespace agg

#endif  // AGG_KERNELS_ELEMENT_MATH_H_
