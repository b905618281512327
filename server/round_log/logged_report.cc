// Records as reports: the other half of round_record.h. A log may come from
// another release or be damaged: nothing here relies on lists that fit
// together.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "server/combine/statistics.h"
#include "server/round/round_numbers.h"
#include "server/round_log/logged_number.h"
#include "server/round_log/round_record.h"

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void SetRows(const v1::RoundLogRecord& record, RoundReport* report) {
  for (const v1::LoggedRow& row : record.rows()) {
    RowInfo info;
    info.rank = row.rank();
    info.examples = row.examples();
    info.accumulation = row.accumulation();
    info.loss_scale = row.loss_scale();
    report->rows.push_back(info);
    if (row.excluded()) report->decision.excluded_ranks.push_back(row.rank());
    report->commit_delays.push_back(absl::Seconds(row.commit_delay_seconds()));
    report->statistics.row_norms.push_back(row.norm());
    report->statistics.mean_cosines.push_back(row.mean_cosine());
    report->statistics.row_coefficients.push_back(row.coefficient());
    report->traceparents.push_back(row.traceparent());
    report->origins.push_back(
        {row.session(),
         row.attempt(),
         {row.row_crc32c().begin(), row.row_crc32c().end()}});
  }
}

// `coefficients` is row-major, segments x W; a last row that is short is
// dropped.
void SetCoefficients(const v1::RoundLogRecord& record, Decision* decision) {
  const int num_rows = record.rows_size();
  const auto& values = record.coefficients();
  for (int i = 0; num_rows > 0 && i + num_rows <= values.size();
       i += num_rows) {
    decision->coefficients.emplace_back(values.begin() + i,
                                        values.begin() + i + num_rows);
  }
}

Decision DecisionOf(const v1::RoundLogRecord& record) {
  Decision decision;
  decision.kind = record.applied() ? DecisionKind::kApply : DecisionKind::kSkip;
  decision.per_tensor = record.scope() == ScopeName(Scope::kPerTensor);
  for (const float orthogonality : record.tensor_orthogonality()) {
    SegmentReport tensor;
    tensor.orthogonality = static_cast<double>(orthogonality);
    tensor.kappa = kNan;
    decision.tensors.push_back(tensor);
  }
  decision.compensated = record.compensated();
  decision.adacons_fallback = record.adacons_fallback();
  decision.finished = record.finished();
  SetCoefficients(record, &decision);
  return decision;
}

// The log has no cosines: they follow from the Gram matrix in the way of
// ComputeStatistics.
std::vector<double> CosinesOf(const std::vector<double>& gram, size_t side) {
  std::vector<double> norms;
  for (size_t i = 0, k = 0; i < side && k < gram.size(); k += side - i, ++i) {
    norms.push_back(std::sqrt(gram[k]));
  }
  std::vector<double> cosines;
  for (size_t i = 0, k = 0; i < norms.size(); ++i) {
    for (size_t j = i; j < norms.size() && k < gram.size(); ++j, ++k) {
      const double product = norms[i] * norms[j];
      cosines.push_back(product > 0.0 ? std::clamp(gram[k] / product, -1.0, 1.0)
                                      : kNan);
    }
  }
  return cosines;
}

void SetStatistics(const v1::RoundLogRecord& record,
                   RoundStatistics* statistics) {
  statistics->gram.assign(record.gram().begin(), record.gram().end());
  statistics->cosines = CosinesOf(
      statistics->gram,
      static_cast<size_t>(std::min(record.rows_size(), kMaxMatrixRows)));
  for (const v1::LoggedShadow& logged : record.shadows()) {
    const Rule* const rule = FindRule(logged.rule());
    const absl::StatusOr<Scope> scope = ParseScope("scope", logged.scope());
    if (rule == nullptr || !scope.ok()) continue;
    ShadowReport shadow;
    shadow.rule = rule;
    shadow.scope = *scope;
    shadow.norm = logged.norm();
    shadow.cosine = logged.cosine();
    statistics->shadows.push_back(std::move(shadow));
  }
}

void SetTimes(const v1::RoundLogRecord& record, RoundReport* report) {
  const v1::LoggedPhases& phases = record.phases();
  report->durations.wait = absl::Seconds(phases.wait());
  report->durations.gram = absl::Seconds(phases.gram());
  report->durations.compensated = absl::Seconds(phases.compensated());
  report->durations.decide = absl::Seconds(phases.decide());
  report->durations.norms = absl::Seconds(phases.norms());
  report->durations.update = absl::Seconds(phases.update());
  report->durations.publish = absl::Seconds(phases.publish());
  for (const v1::LoggedShard& shard : record.shards()) {
    ShardSeconds seconds;
    seconds.gram = shard.gram();
    seconds.compensated = shard.compensated();
    seconds.norms = shard.norms();
    seconds.update = shard.update();
    seconds.publish = shard.publish();
    report->shard_seconds.push_back(seconds);
  }
}

}  // namespace

RoundReport FromProto(const v1::RoundLogRecord& record) {
  RoundReport report;
  report.epoch = record.epoch();
  report.history = record.history();
  report.restored = record.restored();
  report.round = record.round();
  report.version = record.version();
  report.finished_at =
      absl::UnixEpoch() + absl::Seconds(record.finished_at_seconds());
  report.applied = record.applied();
  report.message = record.message();
  report.combination.rule = record.rule();
  report.combination.scope = record.scope();
  report.combination.step_scale = record.step_scale();
  report.decision = DecisionOf(record);
  SetRows(record, &report);
  SetStatistics(record, &report.statistics);
  SetTimes(record, &report);
  for (const RoundNumber& number : RoundNumbers()) {
    if (number.value.IsDerived()) continue;
    number.value.Set(LoggedNumber(number, record), &report);
  }
  return report;
}

}  // namespace agg
