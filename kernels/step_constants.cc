// Everything is computed in double and rounded once. Powers are products in
// a fixed order, which gives the same bits with every C library.
#include "kernels/step_constants.h"

#include <cassert>
#include <cmath>

namespace agg {
namespace {

double Power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

StepConstants MakeStepConstants(const OptimizerOptions& optimizer, int64_t step,
                                float learning_rate, float weight_decay,
                                float trust) {
  assert(step >= 1);
  // Hyperparameters arrive as float; 0.9f stands for 0.9f, not for 0.9.
  const double rate = learning_rate;
  const double beta1 = optimizer.beta1;
  const double beta2 = optimizer.beta2;
  const double bias1 = 1.0 - Power(beta1, step);
  const double bias2 = 1.0 - Power(beta2, step);
  StepConstants c;
  c.rate = static_cast<float>(rate * trust);
  c.negative_rate = -c.rate;
  c.adam_rate = static_cast<float>(-rate / bias1);
  c.decay = weight_decay;
  c.shrink = static_cast<float>(1.0 - rate * weight_decay);
  c.momentum = optimizer.momentum;
  c.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  c.beta2 = optimizer.beta2;
  c.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  c.inverse_bias1 = static_cast<float>(1.0 / bias1);
  c.inverse_root_bias2 = static_cast<float>(1.0 / std::sqrt(bias2));
  c.epsilon = optimizer.epsilon;
  return c;
}

}  // namespace agg
