// What scrapes see of the rounds so far, as one plain value that is made from
// the one before it and a round's report. Apart from Prometheus, so that it can
// be tested without it.
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
#include "server/round/timed_phases.h"

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

struct ShadowGauges {
  double cosine = kUndefined;
  double norm = kUndefined;
};

// Values that are not defined yet are NaN.
struct RoundGauges {
  // Values by RoundNumbers(), each of the rounds that its SetBy names.
  std::vector<double> numbers;
  // Lists, of the last applied round.
  std::vector<WorkerGauges> workers;   // ascending ranks below the cap
  std::vector<SegmentReport> tensors;  // as TensorSelection::tensors
  std::vector<ShadowGauges> shadows;   // as MetricsOptions::shadow_rules
};

// A tensor before its first round.
SegmentReport UndefinedTensor();

struct RoundState {
  std::shared_ptr<const TensorSelection> selection;  // never null
  RoundGauges gauges;
  double last_round_time = kUndefined;  // Unix time in seconds
  // Totals since the process started.
  uint64_t applied_rounds = 0, skipped_rounds = 0;
  uint64_t examples = 0;       // of rows that entered an applied round
  uint64_t excluded_rows = 0;  // but for outliers
  std::vector<uint64_t> excluded_by_rank;  // up to the last rank with a series
  uint64_t outlier_rows = 0;               // excluded or not
  std::vector<uint64_t> outliers_by_rank;  // as excluded_by_rank
  std::vector<double> delay_seconds_by_rank;  // likewise
  uint64_t compensated_rounds = 0;
  uint64_t adacons_fallback_rounds = 0;
  uint64_t short_rounds = 0;          // Decision::short_of_rows
  uint64_t narrowed_to_infinity = 0;  // NarrowedVersion::num_infinite
  uint64_t narrowed_to_zero = 0;      // NarrowedVersion::num_vanished
  std::array<DurationHistogram, kTimedPhases.size()> phases;
  DurationHistogram rounds;  // all phases of a round together
};

// Makes the state before the first round: sums are 0; gauges are there, but
// undefined, for every number, expected worker, selected tensor and shadow
// rule.
RoundState InitialRoundState(const MetricsOptions& options);

// `state` after the round, which ended `now`. A skipped round is counted, but
// leaves the gauges as the last applied one set them; only numbers with
// SetBy::kEvery change. A phase that took no time did not run and is not
// observed. Lists of the report that are too short leave values undefined.
RoundState NextRoundState(const MetricsOptions& options,
                          const RoundState& state, const RoundReport& report,
                          absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_ROUND_STATE_H_
