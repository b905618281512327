// AdaScale's estimators on the vectors themselves, as three sources have them.
#ifndef AGG_TESTS_REFERENCE_ADASCALE_ESTIMATORS_H_
#define AGG_TESTS_REFERENCE_ADASCALE_ESTIMATORS_H_

#include <vector>

#include "tests/reference/row_statistics.h"

namespace agg {
namespace reference {

struct Estimate {
  Real variance = 0;      // sigma^2 of one baseline batch
  Real mean_squared = 0;  // mu^2
};

// The paper: S gradients of one baseline batch each.
Estimate PaperEstimate(const Rows& gradients);

// fairscale/optim/adascale.py: cN micro-gradients, any scale S.
Estimate FairscaleEstimate(const Rows& micro_gradients, Real scale);

// adaptdl/torch/gradient_noise_scale.py: count gradients, any scale.
Estimate AdaptdlEstimate(const Rows& gradients, Real scale);

// Row i is the mean of n_i baseline batches (server/combine/README.md 5.2).
Estimate UnequalEstimate(const Rows& rows, const std::vector<double>& units);

// (variance + mean_squared) / (variance / scale + mean_squared).
Real Gain(const Estimate& estimate, Real scale);

// fairscale's averages: debiased EMA, or the paper's mean-then-EMA.
class Averages {
 public:
  explicit Averages(bool debiased) : debiased_(debiased) {}
  // Clips the sample first: variance >= 1e-6, mean_squared >= 0.
  Estimate Add(Estimate sample, Real smoothing);
  // AdaptDL's order: the sample as it is, the result clipped.
  Estimate AddThenClip(const Estimate& sample, Real smoothing);

 private:
  Estimate Update(const Estimate& sample, Real smoothing);

  const bool debiased_;
  int count_ = 0;
  Estimate biased_;
  Real weight_ = 0;
  Estimate total_;
  Estimate average_;
};

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ADASCALE_ESTIMATORS_H_
