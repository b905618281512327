// AdaScale's estimators on the vectors themselves, as three sources have them.
#ifndef AGG_TESTS_REFERENCE_ADASCALE_ESTIMATORS_H_
#define AGG_TESTS_REFERENCE_ADASCALE_ESTIMATORS_H_

#include <cstddef>
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

// AdaptDL: smoothing to the power of the scale, by multiplication.
Real PowerOfScale(Real smoothing, int scale);

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

// The submission of AdaScale (ICLR 2020), algorithm 1: r_0 = 1, and r_t from
// the averages over iterations before t.
class PriorGains {
 public:
  // Returns r_t, and takes the gradients of iteration t into the averages.
  Real Next(const Rows& gradients, Real scale, Real smoothing);

 private:
  Averages averages_{/*debiased=*/false};
  bool has_prior_ = false;
  Estimate prior_;
};

// A gain for each parameter group, as fairscale and AdaptDL have it: group g
// has the columns from starts[g] to starts[g + 1].
class GroupGains {
 public:
  // `clip_first`: fairscale's order, else AdaptDL's.
  GroupGains(std::vector<size_t> starts, bool clip_first);

  // Takes a round. Returns each group's gain, and as the last one that of the
  // sums over the groups, by which both count progress.
  std::vector<Real> Next(const Rows& rows, Real scale, Real smoothing);

 private:
  const std::vector<size_t> starts_;
  const bool clip_first_;
  std::vector<Averages> averages_;
};

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ADASCALE_ESTIMATORS_H_
