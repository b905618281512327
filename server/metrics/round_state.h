// What scrapes see of the rounds so far, as one plain value that is made from
// the one before it and a round's report; with the options of the metrics, and
// how far norms lie from the others. Apart from Prometheus, so that it can be
// tested without it.
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
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"

namespace agg {

// One shadow rule, by the names of its line in rule_table.h and of ScopeName.
struct ShadowNames {
  std::string rule;
  std::string scope;
};

// What the metrics of one process get at its start.
struct MetricsOptions {
  std::string job = "default";  // label of every series
  int32_t ordinal = 0;          // label `shard`; 0 has the job's series too
  int32_t shards = 1;           // of the job
  int32_t workers = 1;          // expected; their series exist from the start
  // Effective names, as NamesOf (job_record.h) gives them; shown until there
  // is a JobStatus, which has those of the open round.
  std::string rule = "mean";
  std::string scope = "per_tensor";
  std::string step_scale = "none";
  std::vector<ShadowNames> shadow_rules;  // as in CombineOptions
  // Cardinality: the `max_tensors` tensors with most elements, and ranks
  // below `max_workers`, have series of their own; 0 is none.
  int32_t max_tensors = 32;
  int32_t max_workers = 64;
  bool replicated = false;                // replication "buddy"
  double checkpoint_every_seconds = 0.0;  // 0: not by time, or none at all
  uint64_t checkpoint_every_rounds = 0;   // 0: not by rounds, or none at all
  bool insecure = false;  // others than this host's reach it without TLS
  std::string version;    // of the build
};

// A histogram of durations with fixed buckets, as a plain value.
// prometheus-cpp's own Histogram takes a mutex at each observation and cannot
// be copied; this one is part of a state that is copied and published.
// Thread-compatible.
class DurationHistogram {
 public:
  // Upper bounds in seconds, inclusive; a last bucket without bound follows.
  static constexpr std::array<double, 19> kBounds = {
      1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1,
      0.25, 0.5,    1.0,  2.5,  5.0,    10.0, 25.0, 50.0,   100.0};
  static constexpr size_t kNumBuckets = kBounds.size() + 1;

  void Observe(absl::Duration duration) {
    const double seconds = absl::ToDoubleSeconds(duration);
    size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++counts_[bucket];
    sum_seconds_ += seconds;
  }

  // Observations in each bucket, not cumulated.
  const std::array<uint64_t, kNumBuckets>& counts() const { return counts_; }
  double sum_seconds() const { return sum_seconds_; }

 private:
  std::array<uint64_t, kNumBuckets> counts_ = {};
  double sum_seconds_ = 0.0;
};

// Number of norms below which there are no scores: the MAD of a few values is
// often small by chance, and then a healthy worker looks like an outlier.
// README.md of this folder ("From how many workers on") has the measured
// shares.
inline constexpr size_t kMinOutlierNorms = 8;

// How far each worker's gradient norm lies from those of the others:
// |log norm - median| / (1.4826 MAD) of each of `norms`, which are >= 0 or NaN
// (no norm: not counted, and no score). 1.4826 MAD estimates the standard
// deviation of normally distributed logarithms. A norm that is the median has
// score 0; another has +Inf when more than half of the norms are equal or it
// is 0. All NaN with fewer than kMinOutlierNorms norms.
std::vector<double> OutlierScores(const std::vector<double>& norms);

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
  uint64_t short_rounds = 0;              // Decision::short_of_rows
  uint64_t external_fallback_rounds = 0;  // Decision::external_fallback
  uint64_t narrowed_to_infinity = 0;      // NarrowedVersion::num_infinite
  uint64_t narrowed_to_zero = 0;          // NarrowedVersion::num_vanished
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
