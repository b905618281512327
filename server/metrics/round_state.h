// What the scrapes know of the rounds so far: one plain value, made from the
// one before it and a round's report. Nothing here knows Prometheus.
#ifndef AGG_SERVER_METRICS_ROUND_STATE_H_
#define AGG_SERVER_METRICS_ROUND_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/metrics/duration_histogram.h"
#include "server/metrics/metrics_options.h"
#include "server/round/round_report.h"

namespace agg {

// The tensors that have series of their own.
struct TensorSelection {
  struct Tensor {
    std::string name;  // well-formed UTF-8, unique in the selection
    size_t index = 0;  // in the manifest, and in Decision::tensors
  };
  std::vector<Tensor> tensors;  // manifest order
  size_t num_tensors = 0;       // of the manifest
};

// The `max_tensors` largest of `tensors` (name, elements; manifest order);
// among equals the earlier ones.
TensorSelection SelectTensors(
    const std::vector<std::pair<std::string, int64_t>>& tensors,
    int32_t max_tensors);

inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

struct WorkerGauges {
  int32_t rank = 0;
  double coefficient = kUndefined;
  double adacons_coefficient = kUndefined;
  double gradient_norm = kUndefined;
  double mean_cosine = kUndefined;
  double outlier_score = kUndefined;
};

struct TensorGauges {
  double orthogonality = kUndefined;
  double kappa = kUndefined;
};

struct ShadowGauges {
  double cosine = kUndefined;
  double norm = kUndefined;
};

// Of the last applied round; as named in RoundReport.
struct RoundGauges {
  double num_rows = kUndefined;
  double orthogonality = kUndefined;
  double max_kappa = kUndefined;
  double gradient_diversity = kUndefined;
  double mean_pairwise_cosine = kUndefined;
  double min_pairwise_cosine = kUndefined;
  double effective_rank = kUndefined;
  double combined_norm = kUndefined;
  double clip_factor = kUndefined;
  double coefficient_sum = kUndefined;
  double scheduled_learning_rate = kUndefined;
  double step_factor = kUndefined;
  double learning_rate = kUndefined;
  double gain = kUndefined;
  double sigma2 = kUndefined;
  double mu2 = kUndefined;
  double sigma2_mean = kUndefined;
  double mu2_mean = kUndefined;
  double gradient_noise_scale = kUndefined;
  std::vector<WorkerGauges> workers;  // ascending ranks below the cap
  std::vector<TensorGauges> tensors;  // as TensorSelection::tensors
  std::vector<ShadowGauges> shadows;  // as MetricsOptions::shadow_rules
};

inline constexpr std::array<const char*, 7> kPhaseNames = {
    "wait", "gram", "compensated", "decide", "norms", "update", "publish"};

struct RoundState {
  std::shared_ptr<const TensorSelection> selection;  // never null
  RoundGauges gauges;
  double loss = kUndefined;  // of the last round, skipped ones too
  double tau = 0.0;
  double last_round_time = kUndefined;  // Unix time in seconds
  // Totals since the process started.
  uint64_t applied_rounds = 0, skipped_rounds = 0;
  uint64_t examples = 0;  // of rows that entered an applied round
  uint64_t excluded_rows = 0;
  std::vector<uint64_t> excluded_by_rank;  // up to the last rank with a series
  std::vector<double> delay_seconds_by_rank;  // as excluded_by_rank
  uint64_t compensated_rounds = 0;
  uint64_t adacons_fallback_rounds = 0;
  std::array<DurationHistogram, kPhaseNames.size()> phases;
  DurationHistogram rounds;  // all phases of a round together
};

// Before the first round: zeroes, and undefined gauges for every expected
// worker, selected tensor and shadow rule.
RoundState InitialRoundState(const MetricsOptions& options);

// `state` after the round, which ended `now`. A skipped round counts, and
// leaves the gauges (but for the loss) as the last applied one set them. A
// phase that took no time did not run and is not observed. Lists of the report
// that are too short leave values undefined.
RoundState NextRoundState(const MetricsOptions& options,
                          const RoundState& state, const RoundReport& report,
                          absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_ROUND_STATE_H_
