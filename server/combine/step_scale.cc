// AdaScale in three steps: a round's estimate of noise and signal, their
// running averages, and the gain made of these. Also the schedule's learning
// rate and the factor of clipping.
#include "server/combine/step_scale.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "server/base/dcheck.h"
#include "server/combine/gram_matrix.h"

namespace agg {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// n_i: the baseline batches that the row stands for.
double Units(const StepScaleOptions& options, const RowInfo& row) {
  if (options.baseline_examples > 0.0) {
    return static_cast<double>(row.examples) / options.baseline_examples;
  }
  return row.accumulation;
}

// Whether the row has a usable sum of its micro-gradients' squared norms.
bool BringsMicroSum(const RowInfo& row) {
  return row.micro_norm_squared_sum.has_value() &&
         std::isfinite(*row.micro_norm_squared_sum) &&
         *row.micro_norm_squared_sum >= 0.0;
}

// By what rounding a row to its type may make it longer than it was.
constexpr double kRounding = 0.9;

// Whether the sum is less than any micro-gradients with this mean have
// (Cauchy-Schwarz): mostly it is of a loss that was divided by accumulation,
// which the row is the sum of then.
bool IsSumTooSmall(const RowInfo& row, double norm_squared) {
  return *row.micro_norm_squared_sum / row.loss_scale / row.loss_scale <
         kRounding * row.accumulation * norm_squared;
}

// max(1 - C/1000, 0) unless given: by the number of micro-gradients, not by
// the scale (fairscale).
double Smoothing(const StepScaleOptions& options, const NoiseEstimate& noise) {
  if (options.smoothing < 0.0) {
    return std::max(1.0 - noise.num_micro / 1000.0, 0.0);
  }
  return options.smoothing_per == SmoothingPer::kBaselineBatch
             ? std::pow(options.smoothing, noise.scale)
             : options.smoothing;
}

// One value into its average. `count` includes it.
void Average(Averaging averaging, double smoothing, int64_t count,
             double sample, double* value, double* weight) {
  if (averaging == Averaging::kDebiased) {
    *value = smoothing * *value + (1.0 - smoothing) * sample;
    *weight = smoothing * *weight + (1.0 - smoothing);
    return;
  }
  // The paper, lagged or not: a plain mean of the first 1/(1 - smoothing), then
  // an EMA.
  const double num = static_cast<double>(count);
  const double keep =
      num < 1.0 / (1.0 - smoothing) ? (num - 1.0) / num : smoothing;
  *value = keep * *value + (1.0 - keep) * sample;
  *weight = 1.0;
}

// The least sigma2 that is believed (server/combine/README.md 5.4).
double Floor(const StepScaleOptions& options, const NoiseEstimate& noise) {
  return std::max(options.variance_floor,
                  options.relative_floor * noise.mean_squared_norm);
}

// One round's estimate into both averages.
void TakeSample(const StepScaleOptions& options, const NoiseEstimate& noise,
                GradientAverages* averages) {
  if (std::isnan(noise.sigma2)) return;
  double sigma2 = noise.sigma2;
  double mu2 = noise.mu2;
  if (options.clip_before_average) {
    sigma2 = std::max(sigma2, Floor(options, noise));
    mu2 = std::max(mu2, 0.0);
  }
  const double smoothing = Smoothing(options, noise);
  ++averages->num_samples;
  Average(options.averaging, smoothing, averages->num_samples, sigma2,
          &averages->variance, &averages->variance_weight);
  Average(options.averaging, smoothing, averages->num_samples, mu2,
          &averages->mean_squared, &averages->mean_squared_weight);
}

// What a gain is made of; NaN: there is none.
struct Means {
  double sigma2 = kNan, mu2 = kNan;
};

Means MeansOf(const StepScaleOptions& options, const NoiseEstimate& noise,
              const GradientAverages& averages) {
  if (!(averages.variance_weight > 0.0)) return {};
  Means means = {averages.variance / averages.variance_weight,
                 averages.mean_squared / averages.mean_squared_weight};
  if (!options.clip_before_average) {
    means.sigma2 = std::max(means.sigma2, Floor(options, noise));
    means.mu2 = std::max(means.mu2, 0.0);
  }
  return means;
}

double GainOf(const Means& means, double scale) {
  return std::isnan(means.sigma2)
             ? 1.0
             : AdascaleGain(means.sigma2, means.mu2, scale);
}

// Sums over those that there are.
void AddTo(const Means& more, Means* sum) {
  if (std::isnan(more.sigma2)) return;
  if (std::isnan(sum->sigma2)) *sum = {0.0, 0.0};
  sum->sigma2 += more.sigma2;
  sum->mu2 += more.mu2;
}

// The averages before and after a round.
struct Advanced {
  Means before, after;
};

Advanced Advance(const StepScaleOptions& options, const NoiseEstimate& noise,
                 GradientAverages* averages) {
  Advanced advanced;
  advanced.before = MeansOf(options, noise, *averages);
  TakeSample(options, noise, averages);
  advanced.after = MeansOf(options, noise, *averages);
  return advanced;
}

bool IsLagged(const StepScaleOptions& options) {
  return options.averaging == Averaging::kLagged;
}

double StepFactor(StepScale kind, double scale, double gain) {
  switch (kind) {
    case StepScale::kNone:
      return 1.0;
    case StepScale::kLinear:
      return scale;
    case StepScale::kSqrt:
      return std::sqrt(scale);
    case StepScale::kAdascale:
      return gain;
    case StepScale::kAdamscale:
      return std::sqrt(gain);
  }
  return 1.0;
}

// Keeps the averages of groups that are where they were.
void PlaceGroups(const StepScaleOptions& options,
                 std::vector<GroupAverages>* averages) {
  averages->resize(options.groups.size());
  for (size_t i = 0; i < averages->size(); ++i) {
    GroupAverages& group = (*averages)[i];
    if (group.name != options.groups[i]) group = GroupAverages();
    group.name = options.groups[i];
  }
}

// Rows as samples of their own, and who brought a sum that is not used for it.
std::vector<RowInfo> WithoutSums(absl::Span<const RowInfo> rows,
                                 std::vector<int32_t>* unused) {
  std::vector<RowInfo> without(rows.begin(), rows.end());
  for (RowInfo& row : without) {
    if (BringsMicroSum(row)) unused->push_back(row.rank);
    row.micro_norm_squared_sum.reset();
  }
  return without;
}

// Every group's averages, gain and factor; returns the sums of the averages.
Advanced AdvanceGroups(const StepScaleOptions& options,
                       absl::Span<const RowInfo> rows,
                       absl::Span<const GramMatrix> groups,
                       std::vector<GroupAverages>* averages,
                       StepScaleResult* result) {
  AGG_DCHECK(groups.size() == options.groups.size());
  PlaceGroups(options, averages);
  const std::vector<RowInfo> samples =
      WithoutSums(rows, &result->unused_sum_ranks);
  Advanced sum;
  for (size_t i = 0; i < groups.size(); ++i) {
    double gain = 1.0;
    const double scale = NumBaselineBatches(options, rows);
    if (groups[i].num_rows() > 0) {
      const NoiseEstimate noise = EstimateNoise(options, samples, groups[i]);
      const Advanced group = Advance(options, noise, &(*averages)[i]);
      gain = GainOf(IsLagged(options) ? group.before : group.after, scale);
      AddTo(group.before, &sum.before);
      AddTo(group.after, &sum.after);
    }
    if (!MeasuresGain(options.kind)) continue;
    result->group_gains.push_back(gain);
    result->group_factors.push_back(StepFactor(options.kind, scale, gain));
  }
  return sum;
}

}  // namespace

double NumBaselineBatches(const StepScaleOptions& options,
                          absl::Span<const RowInfo> rows) {
  double num = 0.0;
  for (const RowInfo& row : rows) num += Units(options, row);
  return num;
}

NoiseEstimate EstimateNoise(const StepScaleOptions& options,
                            absl::Span<const RowInfo> rows,
                            const GramMatrix& gram) {
  AGG_DCHECK(gram.num_rows() >= 1);
  AGG_DCHECK(rows.size() == static_cast<size_t>(gram.num_rows()));
  NoiseEstimate noise;
  noise.scale = 0.0;
  noise.num_micro = 0.0;
  std::vector<double> shares(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    shares[i] = Units(options, rows[i]);
    noise.scale += shares[i];
    noise.num_micro += rows[i].accumulation;
  }
  double num_samples = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    shares[i] /= noise.scale;
    double squared_norm = gram(i, i);
    bool brings_sum = BringsMicroSum(rows[i]);
    if (brings_sum && IsSumTooSmall(rows[i], squared_norm)) {
      noise.small_sum_ranks.push_back(rows[i].rank);
      brings_sum = false;
    }
    if (brings_sum) {
      squared_norm = *rows[i].micro_norm_squared_sum / rows[i].accumulation /
                     rows[i].loss_scale / rows[i].loss_scale;
    }
    num_samples += brings_sum ? rows[i].accumulation : 1;
    noise.mean_squared_norm += shares[i] * squared_norm;
  }
  const double total = QuadraticForm(gram, shares);
  noise.sigma2 =
      (noise.mean_squared_norm - total) * noise.scale / (num_samples - 1.0);
  noise.mu2 = total - noise.sigma2 / noise.scale;
  const bool usable = num_samples > 1.0 && std::isfinite(noise.sigma2) &&
                      std::isfinite(noise.mu2);
  if (!usable) noise.sigma2 = noise.mu2 = kNan;
  return noise;
}

double AdascaleGain(double sigma2, double mu2, double scale) {
  const double denominator = sigma2 / scale + mu2;
  if (!(denominator > 0.0)) return 1.0;
  const double gain = (sigma2 + mu2) / denominator;
  // True by construction; rounding must not break it.
  return std::clamp(gain, std::min(1.0, scale), std::max(1.0, scale));
}

StepScaleResult AdvanceStepScale(const StepScaleOptions& options,
                                 absl::Span<const RowInfo> rows,
                                 const GramMatrix& gram, StepScaleState* state,
                                 absl::Span<const GramMatrix> groups) {
  const NoiseEstimate noise = EstimateNoise(options, rows, gram);
  StepScaleResult result;
  result.sigma2 = noise.sigma2;
  result.mu2 = noise.mu2;
  result.small_sum_ranks = noise.small_sum_ranks;
  Advanced averages = Advance(options, noise, state);
  if (options.gain_scope == GainScope::kPerGroup) {
    averages = AdvanceGroups(options, rows, groups, &state->groups, &result);
  } else {
    state->groups.clear();
  }
  const Means& used = IsLagged(options) ? averages.before : averages.after;
  result.sigma2_mean = used.sigma2;
  result.mu2_mean = used.mu2;
  result.gain = GainOf(used, noise.scale);
  result.next_gain =
      IsLagged(options) ? GainOf(averages.after, noise.scale) : kNan;
  result.step_factor = StepFactor(options.kind, noise.scale, result.gain);
  state->tau += MeasuresGain(options.kind) ? result.gain : 1.0;
  return result;
}

bool MeasuresGain(StepScale kind) {
  return kind == StepScale::kAdascale || kind == StepScale::kAdamscale;
}

namespace {

constexpr double kPi = 3.14159265358979323846;

double WarmupFactor(const ScheduleOptions& options, double t) {
  if (t >= options.warmup_steps) return 1.0;
  const double start = options.warmup_start_factor;
  return start + (1.0 - start) * (t / options.warmup_steps);
}

double DecayFactor(const ScheduleOptions& options, double t) {
  const double since_warmup = std::max(t - options.warmup_steps, 0.0);
  const double progress = std::min(since_warmup / options.decay_steps, 1.0);
  const double final_factor = options.final_factor;
  switch (options.kind) {
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kMultistep: {
      const auto passed = std::upper_bound(options.boundaries.begin(),
                                           options.boundaries.end(), t) -
                          options.boundaries.begin();
      return std::pow(options.gamma, static_cast<double>(passed));
    }
    case ScheduleKind::kExponential:
      return std::pow(options.gamma, since_warmup / options.decay_steps);
    case ScheduleKind::kPolynomial:
      return final_factor +
             (1.0 - final_factor) * std::pow(1.0 - progress, options.power);
    case ScheduleKind::kCosine:
      return final_factor +
             (1.0 - final_factor) * 0.5 * (1.0 + std::cos(kPi * progress));
    case ScheduleKind::kInverseSqrt: {
      const double warm = std::max(options.warmup_steps, 1.0);
      return std::sqrt(warm / std::max(t, warm));
    }
  }
  return 1.0;
}

}  // namespace

double ScheduledLearningRate(const ScheduleOptions& options, double t) {
  return options.learning_rate * WarmupFactor(options, t) *
         DecayFactor(options, t);
}

double ClipFactor(double norm, double clip_norm) {
  AGG_DCHECK(std::isfinite(norm) && norm >= 0.0);
  AGG_DCHECK(std::isfinite(clip_norm) && clip_norm >= 0.0);
  if (clip_norm == 0.0 || norm <= clip_norm) return 1.0;
  return clip_norm / norm;
}

}  // namespace agg
