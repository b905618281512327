// How long a step is: the schedule's learning rate, clipping, and step scales,
// which are factors on the rate from the same Gram matrix as the rule but apart
// from it. AdaScale's estimators and averages (server/combine/README.md 5).
#ifndef AGG_SERVER_COMBINE_STEP_SCALE_H_
#define AGG_SERVER_COMBINE_STEP_SCALE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"

namespace agg {

// Averages of sigma^2 and mu^2 (server/combine/README.md 5.3).
// Debiased: biased EMAs and their weights; the averages are the quotients.
// Paper, lagged: the averages themselves, weights 1. Nothing is reset or
// rescaled when the number of workers changes: both are normalised to the
// baseline batch.
struct GradientAverages {
  double variance = 0.0, variance_weight = 0.0;
  double mean_squared = 0.0, mean_squared_weight = 0.0;
  int64_t num_samples = 0;
};

// Those of one tensor group.
struct GroupAverages : GradientAverages {
  std::string name;
};

// The model's averages, each group's where gains are per group, and tau.
struct StepScaleState : GradientAverages {
  double tau = 0.0;                   // scale-invariant iterations so far
  std::vector<GroupAverages> groups;  // as StepScaleOptions::groups, or empty
};

// One round's unbiased estimates. Row i stands for n_i baseline batches, N =
// sum n_i, p_i = n_i/N, gbar = sum p_i g_i. A row that brings the sum of its
// micro-gradients' squared norms counts as its accumulation of samples, another
// as one; K samples in all (server/combine/README.md 5.2):
//   sigma2 = (sum over samples of p ||g||^2 - ||gbar||^2) * N / (K - 1)
//   mu2 = ||gbar||^2 - sigma2 / N
struct NoiseEstimate {
  double scale = 1.0;              // N (S of the formulas)
  double num_micro = 1.0;          // sum of accumulation
  double mean_squared_norm = 0.0;  // sum of p ||g||^2
  // NaN when K = 1 (no estimator) or a sum is not finite.
  double sigma2 = 0.0, mu2 = 0.0;
  // Rows whose sum cannot be of the micro-gradients that they average, since
  // it is less than accumulation ||g||^2: it is not used, and the row counts as
  // one sample.
  std::vector<int32_t> small_sum_ranks;
};

// `gram` is model-wise, loss scale removed; micro sums are as pushed.
// REQUIRES: rows.size() == gram.num_rows() >= 1.
NoiseEstimate EstimateNoise(const StepScaleOptions& options,
                            absl::Span<const RowInfo> rows,
                            const GramMatrix& gram);

// (sigma2 + mu2) / (sigma2 / scale + mu2), for clipped averages (>= 0): in
// [1, scale] for scale >= 1. 1 where both are 0.
double AdascaleGain(double sigma2, double mu2, double scale);

struct StepScaleResult {
  double sigma2 = 0.0, mu2 = 0.0;            // this round's, unclipped; or NaN
  double sigma2_mean = 0.0, mu2_mean = 0.0;  // as in the gain; NaN before any
  double gain = 1.0;  // AdaScale's, whatever the step scale
  // The gain of a next round of as many baseline batches, if it is known before
  // that round (lagged), else NaN.
  double next_gain = 0.0;
  double step_factor = 1.0;  // on the learning rate
  // Gains and factors of the groups; empty unless gains are per group and the
  // step scale uses them. 1 for a group without tensors or averages.
  std::vector<double> group_gains;
  std::vector<double> group_factors;
  std::vector<int32_t> small_sum_ranks;  // NoiseEstimate's
  // Ranks whose sums were not used since gains are per group.
  std::vector<int32_t> unused_sum_ranks;
};

// Takes an applied round into *state: averages where there is an estimate, and
// tau, which grows by the gain (adascale, adamscale) or by 1. The gain is of
// the averages with this round (debiased, paper) or before it (lagged).
//
// Per group, `groups` has the Gram matrix of each of the options' groups, and
// one without rows for a group without tensors. Each group has averages of its
// own, without micro sums, which are of all tensors; sigma2_mean and mu2_mean
// are the sums over the groups, and the gain is that of the sums (fairscale,
// AdaptDL). The model's own averages go on beside them. Averages of groups that
// the options do not have in this place begin anew.
//
// Floors: sigma2 >= max(variance_floor, relative_floor * mean squared norm),
// mu2 >= 0, before averaging (fairscale) or after it (AdaptDL). Without an
// estimate (one worker that brings no micro sums) the averages stay, and the
// gain is theirs at S = N: exactly 1 for N = 1; 1 while there are none.
// step_factor: none 1, linear N, sqrt sqrt(N), adascale gain, adamscale
// sqrt(gain). adamscale is on raw rows: AdaptDL's measures gradients after
// Adam's preconditioning, which rows do not have.
StepScaleResult AdvanceStepScale(const StepScaleOptions& options,
                                 absl::Span<const RowInfo> rows,
                                 const GramMatrix& gram, StepScaleState* state,
                                 absl::Span<const GramMatrix> groups = {});

// N: the baseline batches that these rows stand for. It does not depend on
// their values.
double NumBaselineBatches(const StepScaleOptions& options,
                          absl::Span<const RowInfo> rows);

// Whether tau grows by the gain and schedules are evaluated at tau.
bool MeasuresGain(StepScale kind);

// The schedule: rate * warm(t) * decay(t), t >= 0 in rounds or scale-invariant
// iterations.
//
// warm(t) goes linearly from warmup_start_factor at t = 0 to 1 at warmup_steps.
// decay(t), with u = max(t - warmup_steps, 0) and x = min(u / decay_steps, 1):
//   constant      1
//   multistep     gamma^(number of boundaries <= t): boundaries are absolute,
//                 so that warm-up plus multistep is LSW
//                 (server/combine/README.md 6)
//   exponential   gamma^(u / decay_steps), continuous, no end
//   polynomial    final_factor + (1 - final_factor) (1 - x)^power
//   cosine        final_factor + (1 - final_factor) (1 + cos(pi x)) / 2
//   inverse_sqrt  sqrt(w / max(t, w)), w = max(warmup_steps, 1)
// Pure. REQUIRES: validated options.
double ScheduledLearningRate(const ScheduleOptions& options, double t);

// Clips by the global norm: min(1, clip_norm / norm), for the combined
// gradient's norm over all tensors, which comes from Gram matrices: sqrt(sum_t
// w_t^T G_t w_t). 1 when clip_norm is 0 (off) or the norm is 0. The factor goes
// into the coefficients, so clipping costs no pass over the rows
// (server/combine/README.md 8). REQUIRES: both finite and >= 0.
double ClipFactor(double norm, double clip_norm);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_STEP_SCALE_H_
