#include "tests/conformance/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace agg::oracle {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int special_exponent() const { return (1 << exponent_bits) - 1; }
};

Format FormatOf(DType dtype) {
  return dtype == DType::kBF16 ? Format{8, 7} : Format{5, 10};
}

}  // namespace

double Widen(DType dtype, uint16_t bits) {
  const Format format = FormatOf(dtype);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent =
      (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == format.special_exponent()) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) {
    return sign *
           std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  }
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits),
                           exponent - format.bias() - format.mantissa_bits);
}

uint16_t Narrow(DType dtype, float value) {
  const Format format = FormatOf(dtype);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = format.special_exponent() << format.mantissa_bits;
  if (std::isnan(value)) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const int payload = (bits & 0x7fffff) >> (23 - format.mantissa_bits);
    const int quiet = 1 << (format.mantissa_bits - 1);
    return static_cast<uint16_t>(sign | infinity | quiet | payload);
  }
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const int least_exponent = 1 - format.bias();
  const int exponent = magnitude == 0.0
                           ? least_exponent
                           : std::max(std::ilogb(magnitude), least_exponent);
  // In units of the last place: an integer up to 2^(mantissa_bits + 1).
  const int units = static_cast<int>(
      std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  // Counting patterns: a carry out of the mantissa is the next exponent.
  const int pattern =
      ((exponent - least_exponent) << format.mantissa_bits) + units;
  return static_cast<uint16_t>(sign | std::min(pattern, infinity));
}

Dot ExactDot(const std::vector<double>& a, const std::vector<double>& b) {
  Dot dot;
  for (size_t k = 0; k < a.size(); ++k) {
    const __float128 product = static_cast<__float128>(a[k]) * b[k];
    dot.sum += product;
    dot.magnitude += product < 0 ? -product : product;
  }
  return dot;
}

Combination Combine(const std::vector<std::vector<double>>& rows,
                    const std::vector<double>& coefficients) {
  Combination combination;
  for (size_t k = 0; k < rows[0].size(); ++k) {
    __float128 sum = 0;
    __float128 magnitude = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const __float128 term =
          static_cast<__float128>(coefficients[i]) * rows[i][k];
      sum += term;
      magnitude += term < 0 ? -term : term;
    }
    combination.sum.push_back(static_cast<double>(sum));
    combination.magnitude.push_back(static_cast<double>(magnitude));
  }
  return combination;
}

Optimizer::Optimizer(const OptimizerOptions& options,
                     std::vector<double> parameters)
    : options_(options),
      parameters_(std::move(parameters)),
      state0_(parameters_.size(), options.kind == OptimizerKind::kAdagrad
                                      ? options.initial_accumulator
                                      : 0.0),
      state1_(parameters_.size(), 0.0) {}

double Optimizer::MomentumDirection(size_t k, double gradient) {
  const double momentum = options_.momentum;
  if (momentum == 0.0) return gradient;
  state0_[k] = momentum * state0_[k] + gradient;
  return options_.nesterov ? gradient + momentum * state0_[k] : state0_[k];
}

double Optimizer::AdamDirection(size_t k, double gradient) {
  const double beta1 = options_.beta1;
  const double beta2 = options_.beta2;
  state0_[k] = beta1 * state0_[k] + (1.0 - beta1) * gradient;
  state1_[k] = beta2 * state1_[k] + (1.0 - beta2) * gradient * gradient;
  const double m = state0_[k] / (1.0 - std::pow(beta1, step_));
  const double v = state1_[k] / (1.0 - std::pow(beta2, step_));
  return m / (std::sqrt(v) + options_.epsilon);
}

double Optimizer::Direction(size_t k, double gradient, double learning_rate,
                            double weight_decay) {
  const double decayed = gradient + weight_decay * parameters_[k];
  switch (options_.kind) {
    case OptimizerKind::kNone:
      return parameters_[k] - gradient;
    case OptimizerKind::kAdd:
      return -learning_rate * MomentumDirection(k, gradient);
    case OptimizerKind::kSgd:
      return learning_rate * MomentumDirection(k, decayed);
    case OptimizerKind::kLars:  // the rate, trust included, is in the buffer
      return MomentumDirection(k, learning_rate * decayed);
    case OptimizerKind::kAdam:
      return learning_rate * AdamDirection(k, decayed);
    case OptimizerKind::kAdamW:
      return learning_rate * (weight_decay * parameters_[k]) +
             learning_rate * AdamDirection(k, gradient);
    case OptimizerKind::kAdagrad:
      state0_[k] += decayed * decayed;
      return learning_rate * decayed /
             (std::sqrt(state0_[k]) + options_.epsilon);
    case OptimizerKind::kLamb:
      return learning_rate *
             (AdamDirection(k, gradient) + weight_decay * parameters_[k]);
    default:  // a new optimizer: its sequence (optimizer_sequences.cc) tests it
      return std::numeric_limits<double>::quiet_NaN();
  }
}

void Optimizer::Step(const std::vector<double>& gradient, double learning_rate,
                     double weight_decay, double trust) {
  ++step_;
  largest_change_ = 0.0;
  for (size_t k = 0; k < parameters_.size(); ++k) {
    const double change =
        Direction(k, gradient[k], learning_rate * trust, weight_decay);
    parameters_[k] -= change;
    largest_change_ = std::max(largest_change_, std::fabs(change));
  }
}

double Optimizer::UpdateNormSquared(const std::vector<double>& gradient,
                                    double weight_decay) const {
  Optimizer copy = *this;
  ++copy.step_;
  double sum = 0.0;
  for (size_t k = 0; k < parameters_.size(); ++k) {
    const double update =
        options_.kind == OptimizerKind::kLamb
            ? copy.Direction(k, gradient[k], 1.0, weight_decay)
            : gradient[k];
    sum += update * update;
  }
  return sum;
}

double Optimizer::ParameterNormSquared() const {
  double sum = 0.0;
  for (const double parameter : parameters_) sum += parameter * parameter;
  return sum;
}

}  // namespace agg::oracle
