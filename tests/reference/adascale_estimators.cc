#include "tests/reference/adascale_estimators.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tests/reference/row_statistics.h"

namespace agg {
namespace reference {
namespace {

Real SumOfSquares(const Rows& rows) {
  Real sum = 0;
  for (const std::vector<double>& row : rows) sum += NormSquared(ToVector(row));
  return sum;
}

Estimate Clip(Estimate estimate) {
  estimate.variance = std::max(estimate.variance, 1e-6L);
  estimate.mean_squared = std::max(estimate.mean_squared, 0.0L);
  return estimate;
}

}  // namespace

Estimate PaperEstimate(const Rows& gradients) {
  const Real s = gradients.size();
  const Real mean_squared_norm = NormSquared(Mean(gradients));
  Estimate estimate;
  estimate.variance =
      SumOfSquares(gradients) / (s - 1) - s / (s - 1) * mean_squared_norm;
  estimate.mean_squared = mean_squared_norm - estimate.variance / s;
  return estimate;
}

Estimate FairscaleEstimate(const Rows& micro_gradients, Real scale) {
  const Real cn = micro_gradients.size();
  const Real local = SumOfSquares(micro_gradients);
  const Real total = NormSquared(Mean(micro_gradients));
  Estimate estimate;
  estimate.variance =
      local * (scale / cn) / (cn - 1) - total * scale / (cn - 1);
  estimate.mean_squared = total - estimate.variance / scale;
  return estimate;
}

Estimate AdaptdlEstimate(const Rows& gradients, Real scale) {
  const Real count = gradients.size();
  const Real local = SumOfSquares(gradients) / count;
  const Real total = NormSquared(Mean(gradients));
  return {(local - total) * scale / (count - 1),
          (count * total - local) / (count - 1)};
}

Estimate UnequalEstimate(const Rows& rows, const std::vector<double>& units) {
  Real num_units = 0;
  for (const double n : units) num_units += n;
  Real local = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    local += units[i] / num_units * NormSquared(ToVector(rows[i]));
  }
  const Real total = NormSquared(WeightedMean(rows, units));
  Estimate estimate;
  estimate.variance =
      (local - total) * num_units / (static_cast<Real>(rows.size()) - 1);
  estimate.mean_squared = total - estimate.variance / num_units;
  return estimate;
}

Real Gain(const Estimate& estimate, Real scale) {
  return (estimate.variance + estimate.mean_squared) /
         (estimate.variance / scale + estimate.mean_squared);
}

Real PowerOfScale(Real smoothing, int scale) {
  Real power = 1;
  for (int i = 0; i < scale; ++i) power *= smoothing;
  return power;
}

Real PriorGains::Next(const Rows& gradients, Real scale, Real smoothing) {
  const Real gain = has_prior_ ? Gain(prior_, scale) : 1;
  prior_ = averages_.Add(PaperEstimate(gradients), smoothing);
  has_prior_ = true;
  return gain;
}

GroupGains::GroupGains(std::vector<size_t> starts, bool clip_first)
    : starts_(std::move(starts)),
      clip_first_(clip_first),
      averages_(starts_.size() - 1, Averages(/*debiased=*/true)) {}

std::vector<Real> GroupGains::Next(const Rows& rows, Real scale,
                                   Real smoothing) {
  std::vector<Real> gains;
  Estimate sum;
  for (size_t group = 0; group < averages_.size(); ++group) {
    Rows part;
    for (const std::vector<double>& row : rows) {
      part.emplace_back(row.begin() + static_cast<int64_t>(starts_[group]),
                        row.begin() + static_cast<int64_t>(starts_[group + 1]));
    }
    const Estimate average =
        clip_first_
            ? averages_[group].Add(FairscaleEstimate(part, scale), smoothing)
            : averages_[group].AddThenClip(AdaptdlEstimate(part, scale),
                                           smoothing);
    gains.push_back(Gain(average, scale));
    sum.variance += average.variance;
    sum.mean_squared += average.mean_squared;
  }
  gains.push_back(Gain(sum, scale));
  return gains;
}

Estimate Averages::Add(Estimate sample, Real smoothing) {
  return Update(Clip(sample), smoothing);
}

Estimate Averages::AddThenClip(const Estimate& sample, Real smoothing) {
  return Clip(Update(sample, smoothing));
}

Estimate Averages::Update(const Estimate& sample, Real smoothing) {
  ++count_;
  if (debiased_) {
    const auto ema = [smoothing](Real old, Real value) {
      return smoothing * old + (1 - smoothing) * value;
    };
    biased_.variance = ema(biased_.variance, sample.variance);
    biased_.mean_squared = ema(biased_.mean_squared, sample.mean_squared);
    weight_ = ema(weight_, 1);
    return {biased_.variance / weight_, biased_.mean_squared / weight_};
  }
  if (count_ < 1 / (1 - smoothing)) {
    total_.variance += sample.variance;
    total_.mean_squared += sample.mean_squared;
    average_ = {total_.variance / count_, total_.mean_squared / count_};
  } else {
    average_.variance =
        smoothing * average_.variance + (1 - smoothing) * sample.variance;
    average_.mean_squared = smoothing * average_.mean_squared +
                            (1 - smoothing) * sample.mean_squared;
  }
  return average_;
}

}  // namespace reference
}  // namespace agg
