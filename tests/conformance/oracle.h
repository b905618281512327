// Slow, literal references for the kernels: no blocks, no lanes, no bit
// tricks. Sums run over the elements in order in __float128; formats are
// decoded and rounded by their definition; optimizers are PyTorch's published
// update rules in double.
#ifndef AGG_TESTS_CONFORMANCE_ORACLE_H_
#define AGG_TESTS_CONFORMANCE_ORACLE_H_

#include <cstdint>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"

namespace agg::oracle {

// The value of a 16-bit pattern: sign * mantissa * 2^exponent.
double Widen(DType dtype, uint16_t bits);

// The nearest pattern, ties to the even one; beyond the largest finite value
// plus half a unit, infinity. A NaN keeps its sign and the upper bits of its
// payload, and is quiet.
uint16_t Narrow(DType dtype, float value);

// sum_k a[k] * b[k] and sum_k |a[k] * b[k]|, in order.
struct Dot {
  __float128 sum = 0;
  __float128 magnitude = 0;
};
Dot ExactDot(const std::vector<double>& a, const std::vector<double>& b);

// sum_i coefficients[i] * rows[i][k] for every k, and the sum of magnitudes.
struct Combination {
  std::vector<double> sum;
  std::vector<double> magnitude;
};
Combination Combine(const std::vector<std::vector<double>>& rows,
                    const std::vector<double>& coefficients);

// One parameter array with its optimizer state, in double.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, std::vector<double> parameters);

  // One step along `gradient`; `trust` is that of lars and lamb.
  void Step(const std::vector<double>& gradient, double learning_rate,
            double weight_decay, double trust);

  // What the coming step's trust ratio divides by (RangeNorms), squared norm.
  double UpdateNormSquared(const std::vector<double>& gradient,
                           double weight_decay) const;
  double ParameterNormSquared() const;

  const std::vector<double>& parameters() const { return parameters_; }
  // max_k |change| of the last step.
  double largest_change() const { return largest_change_; }

 private:
  double Direction(size_t k, double gradient, double learning_rate,
                   double weight_decay);
  double AdamDirection(size_t k, double gradient);
  double MomentumDirection(size_t k, double gradient);

  OptimizerOptions options_;
  int64_t step_ = 0;
  std::vector<double> parameters_;
  std::vector<double> state0_;
  std::vector<double> state1_;
  double largest_change_ = 0.0;
};

}  // namespace agg::oracle

#endif  // AGG_TESTS_CONFORMANCE_ORACLE_H_
