// How one round changes what scrapes see: gauges are replaced, totals grow.
#include "server/metrics/round_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/base/utf8.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"

namespace agg {

std::vector<double> OutlierScores(const std::vector<double>& norms) {
  std::vector<double> scores(norms.size(),
                             std::numeric_limits<double>::quiet_NaN());
  std::vector<double> logs;
  for (const double norm : norms) {
    if (!std::isnan(norm)) logs.push_back(std::log(norm));
  }
  if (logs.size() < kMinOutlierNorms) return scores;
  const std::vector<double> deviations = RobustDeviations(std::move(logs), 0.0);
  size_t next = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!std::isnan(norms[i])) scores[i] = deviations[next++];
  }
  return scores;
}

namespace {

double At(const std::vector<double>& values, size_t i) {
  return i < values.size() ? values[i] : kUndefined;
}

bool IsExcluded(const Decision& decision, int32_t rank) {
  return std::find(decision.excluded_ranks.begin(),
                   decision.excluded_ranks.end(),
                   rank) != decision.excluded_ranks.end();
}

bool IsAdacons(const std::string& name) {
  const Rule* rule = FindRule(name);
  return rule != nullptr && rule->Has(kTakesAdaconsOptions);
}

// The applied rule's coefficients if it is AdaCons; else those of the first
// shadow AdaCons that has one coefficient per row; else nothing.
std::vector<double> AdaconsCoefficients(const MetricsOptions& options,
                                        const RoundReport& report) {
  if (IsAdacons(report.combination.rule)) {
    return report.statistics.row_coefficients;
  }
  const size_t num_shadows =
      std::min(options.shadow_rules.size(), report.statistics.shadows.size());
  for (size_t i = 0; i < num_shadows; ++i) {
    const ShadowReport& shadow = report.statistics.shadows[i];
    if (IsAdacons(options.shadow_rules[i].rule) &&
        !shadow.coefficients.empty()) {
      return shadow.coefficients;
    }
  }
  return {};
}

std::vector<WorkerGauges> Workers(const MetricsOptions& options,
                                  const RoundReport& report) {
  const RoundStatistics& statistics = report.statistics;
  const std::vector<double> adacons = AdaconsCoefficients(options, report);
  const std::vector<double> scores = OutlierScores(statistics.row_norms);
  std::vector<WorkerGauges> workers;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    if (report.rows[i].rank >= options.max_workers) continue;
    WorkerGauges worker;
    worker.rank = report.rows[i].rank;
    worker.coefficient = At(statistics.row_coefficients, i);
    worker.adacons_coefficient = At(adacons, i);
    worker.gradient_norm = At(statistics.row_norms, i);
    worker.mean_cosine = At(statistics.mean_cosines, i);
    worker.outlier_score = At(scores, i);
    workers.push_back(worker);
  }
  return workers;
}

std::vector<SegmentReport> Tensors(const TensorSelection& selection,
                                   const Decision& decision) {
  std::vector<SegmentReport> tensors;
  for (const TensorSelection::Tensor& tensor : selection.tensors) {
    tensors.push_back(tensor.index < decision.tensors.size()
                          ? decision.tensors[tensor.index]
                          : UndefinedTensor());
  }
  return tensors;
}

std::vector<ShadowGauges> Shadows(const MetricsOptions& options,
                                  const RoundReport& report) {
  std::vector<ShadowGauges> shadows(options.shadow_rules.size());
  const std::vector<ShadowReport>& reports = report.statistics.shadows;
  for (size_t i = 0; i < std::min(shadows.size(), reports.size()); ++i) {
    shadows[i].cosine = reports[i].cosine;
    shadows[i].norm = reports[i].norm;
  }
  return shadows;
}

void SetNumbers(const RoundReport& report, RoundGauges* gauges) {
  const std::vector<double> values = ReadRoundNumbers(report);
  for (size_t i = 0; i < values.size(); ++i) {
    if (report.applied || RoundNumbers()[i].set_by == SetBy::kEvery) {
      gauges->numbers[i] = values[i];
    }
  }
}

// The total of `rank`, or null where the rank has no series.
template <typename T>
T* TotalOf(const MetricsOptions& options, int32_t rank,
           std::vector<T>* totals) {
  if (rank < 0 || rank >= options.max_workers) return nullptr;
  const size_t i = static_cast<size_t>(rank);
  if (i >= totals->size()) totals->resize(i + 1);
  return &(*totals)[i];
}

void CountExcluded(const MetricsOptions& options, const Decision& decision,
                   RoundState* state) {
  const std::vector<OutlierRow>& outliers = decision.outliers.rows;
  for (const int32_t rank : decision.excluded_ranks) {
    if (std::any_of(
            outliers.begin(), outliers.end(),
            [rank](const OutlierRow& row) { return row.rank == rank; })) {
      continue;  // has a total of its own
    }
    ++state->excluded_rows;
    uint64_t* total = TotalOf(options, rank, &state->excluded_by_rank);
    if (total != nullptr) ++*total;
  }
}

void CountOutliers(const MetricsOptions& options, const OutlierReport& outliers,
                   RoundState* state) {
  state->outlier_rows += outliers.rows.size();
  for (const OutlierRow& row : outliers.rows) {
    uint64_t* total = TotalOf(options, row.rank, &state->outliers_by_rank);
    if (total != nullptr) ++*total;
  }
}

void AddDelays(const MetricsOptions& options, const RoundReport& report,
               RoundState* state) {
  for (const ReportedRow& row : report.rows) {
    double* total = TotalOf(options, row.rank, &state->delay_seconds_by_rank);
    if (total != nullptr) *total += absl::ToDoubleSeconds(row.commit_delay);
  }
}

void ObservePhases(const PhaseDurations& durations, RoundState* state) {
  absl::Duration total;
  for (size_t i = 0; i < kTimedPhases.size(); ++i) {
    const absl::Duration length = durations.*kTimedPhases[i].length;
    total += length;
    if (length > absl::ZeroDuration()) state->phases[i].Observe(length);
  }
  state->rounds.Observe(total);
}

}  // namespace

TensorSelection SelectTensors(
    const std::vector<std::pair<std::string, int64_t>>& tensors,
    int32_t max_tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].second > tensors[b].second;
  });
  TensorSelection selection;
  selection.num_tensors = tensors.size();
  const size_t cap = static_cast<size_t>(std::max(max_tensors, 0));
  // A manifest's names are unique, but replaced bytes could make two equal.
  std::set<std::string> names;
  for (const size_t index : order) {
    if (selection.tensors.size() == cap) break;
    std::string name = Shown(tensors[index].first);
    if (!names.insert(name).second) continue;
    selection.tensors.push_back({std::move(name), index});
  }
  std::sort(selection.tensors.begin(), selection.tensors.end(),
            [](const TensorSelection::Tensor& a,
               const TensorSelection::Tensor& b) { return a.index < b.index; });
  return selection;
}

SegmentReport UndefinedTensor() {
  SegmentReport tensor;
  tensor.orthogonality = kUndefined;
  tensor.kappa = kUndefined;
  return tensor;
}

RoundState InitialRoundState(const MetricsOptions& options) {
  RoundState state;
  for (const RoundNumber& number : RoundNumbers()) {
    state.gauges.numbers.push_back(number.set_by == SetBy::kSum ? 0.0
                                                                : kUndefined);
  }
  state.selection = std::make_shared<TensorSelection>();
  const int32_t num_workers =
      std::max(std::min(options.workers, options.max_workers), 0);
  for (int32_t rank = 0; rank < num_workers; ++rank) {
    WorkerGauges worker;
    worker.rank = rank;
    state.gauges.workers.push_back(worker);
  }
  state.gauges.shadows.resize(options.shadow_rules.size());
  state.excluded_by_rank.resize(static_cast<size_t>(num_workers));
  state.outliers_by_rank.resize(static_cast<size_t>(num_workers));
  state.delay_seconds_by_rank.resize(static_cast<size_t>(num_workers));
  return state;
}

RoundState NextRoundState(const MetricsOptions& options,
                          const RoundState& state, const RoundReport& report,
                          absl::Time now) {
  RoundState next = state;
  const Decision& decision = report.decision;
  SetNumbers(report, &next.gauges);
  CountExcluded(options, decision, &next);
  CountOutliers(options, decision.outliers, &next);
  AddDelays(options, report, &next);
  ObservePhases(report.durations, &next);
  next.last_round_time = absl::ToDoubleSeconds(now - absl::UnixEpoch());
  next.compensated_rounds += decision.compensated ? 1 : 0;
  next.adacons_fallback_rounds += decision.adacons_fallback ? 1 : 0;
  next.short_rounds += decision.short_of_rows ? 1 : 0;
  next.external_fallback_rounds += decision.external_fallback.empty() ? 0 : 1;
  next.narrowed_to_infinity += report.narrowed.num_infinite;
  next.narrowed_to_zero += report.narrowed.num_vanished;
  if (!report.applied) {
    ++next.skipped_rounds;
    return next;
  }
  ++next.applied_rounds;
  for (const RowInfo& row : report.rows) {
    if (!IsExcluded(decision, row.rank)) {
      next.examples +=
          static_cast<uint64_t>(std::max<int64_t>(row.examples, 0));
    }
  }
  next.gauges.workers = Workers(options, report);
  next.gauges.tensors = Tensors(*next.selection, decision);
  next.gauges.shadows = Shadows(options, report);
  return next;
}

}  // namespace agg
