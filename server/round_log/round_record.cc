// Reports as records: what is written. logged_report.cc reads it.
#include "server/round_log/round_record.h"

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

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double At(const std::vector<double>& values, size_t i) {
  return i < values.size() ? values[i] : kNan;
}

double UnixSeconds(absl::Time time) {
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

absl::Time FromUnixSeconds(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

void AddRows(const RoundReport& report, v1::RoundLogRecord* record) {
  const RoundStatistics& statistics = report.statistics;
  const std::vector<int32_t>& excluded = report.decision.excluded_ranks;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const RowInfo& info = report.rows[i];
    v1::LoggedRow* row = record->add_rows();
    row->set_rank(info.rank);
    row->set_examples(info.examples);
    row->set_accumulation(info.accumulation);
    row->set_loss_scale(info.loss_scale);
    row->set_excluded(std::count(excluded.begin(), excluded.end(), info.rank) !=
                      0);
    if (i < report.commit_delays.size()) {
      row->set_commit_delay_seconds(
          absl::ToDoubleSeconds(report.commit_delays[i]));
    }
    row->set_norm(At(statistics.row_norms, i));
    row->set_mean_cosine(At(statistics.mean_cosines, i));
    row->set_coefficient(At(statistics.row_coefficients, i));
    if (i < report.traceparents.size()) {
      row->set_traceparent(report.traceparents[i]);
    }
    if (i < report.origins.size()) {
      const RowOrigin& origin = report.origins[i];
      row->set_session(origin.session);
      row->set_attempt(origin.attempt);
      row->mutable_row_crc32c()->Add(origin.row_crc32c.begin(),
                                     origin.row_crc32c.end());
    }
  }
}

void AddDecision(const Decision& decision, v1::RoundLogRecord* record) {
  for (const SegmentReport& tensor : decision.tensors) {
    record->add_tensor_orthogonality(static_cast<float>(tensor.orthogonality));
  }
  record->set_compensated(decision.compensated);
  record->set_adacons_fallback(decision.adacons_fallback);
  record->set_finished(decision.finished);
  // A model of many tensors has too many of them for a log; the rows' means are
  // there in any case.
  size_t num_coefficients = 0;
  for (const auto& segment : decision.coefficients) {
    num_coefficients += segment.size();
  }
  if (num_coefficients > kMaxLoggedCoefficients) return;
  for (const std::vector<double>& segment : decision.coefficients) {
    for (const double coefficient : segment) {
      record->add_coefficients(static_cast<float>(coefficient));
    }
  }
}

void AddStatistics(const RoundStatistics& statistics,
                   v1::RoundLogRecord* record) {
  record->mutable_gram()->Add(statistics.gram.begin(), statistics.gram.end());
  for (const ShadowReport& shadow : statistics.shadows) {
    v1::LoggedShadow* logged = record->add_shadows();
    logged->set_rule(std::string(shadow.rule->name));
    logged->set_scope(std::string(ScopeName(shadow.scope)));
    logged->set_norm(shadow.norm);
    logged->set_cosine(shadow.cosine);
  }
}

void AddTimes(const RoundReport& report, v1::RoundLogRecord* record) {
  const PhaseDurations& durations = report.durations;
  v1::LoggedPhases* phases = record->mutable_phases();
  phases->set_wait(absl::ToDoubleSeconds(durations.wait));
  phases->set_gram(absl::ToDoubleSeconds(durations.gram));
  phases->set_compensated(absl::ToDoubleSeconds(durations.compensated));
  phases->set_decide(absl::ToDoubleSeconds(durations.decide));
  phases->set_norms(absl::ToDoubleSeconds(durations.norms));
  phases->set_update(absl::ToDoubleSeconds(durations.update));
  phases->set_publish(absl::ToDoubleSeconds(durations.publish));
  for (const ShardSeconds& seconds : report.shard_seconds) {
    v1::LoggedShard* shard = record->add_shards();
    shard->set_gram(seconds.gram);
    shard->set_compensated(seconds.compensated);
    shard->set_norms(seconds.norms);
    shard->set_update(seconds.update);
    shard->set_publish(seconds.publish);
  }
}

}  // namespace

v1::RoundLogRecord ToProto(const RoundReport& report) {
  v1::RoundLogRecord record;
  record.set_epoch(report.epoch);
  record.set_history(report.history);
  record.set_restored(report.restored);
  record.set_round(report.round);
  record.set_version(report.version);
  record.set_finished_at_seconds(UnixSeconds(report.finished_at));
  record.set_applied(report.applied);
  record.set_message(report.message);
  record.set_rule(report.combination.rule);
  record.set_scope(report.combination.scope);
  record.set_step_scale(report.combination.step_scale);
  for (const RoundNumber& number : RoundNumbers()) {
    // Derived ones are derived again from the record's report.
    if (number.value.IsDerived()) continue;
    LogNumber(number, number.value.Get(report), &record);
  }
  AddRows(report, &record);
  AddDecision(report.decision, &record);
  AddStatistics(report.statistics, &record);
  AddTimes(report, &record);
  return record;
}

v1::RunDescription ToProto(const RunDescription& run) {
  v1::RunDescription result;
  result.set_job(run.job);
  result.set_server_version(run.server_version);
  result.set_started_at_seconds(UnixSeconds(run.started_at));
  result.set_config(run.config);
  result.set_workers(run.workers);
  result.set_shards(run.shards);
  for (const auto& [name, elements] : run.tensors) {
    v1::LoggedTensor* tensor = result.add_tensors();
    tensor->set_name(name);
    tensor->set_elements(elements);
  }
  return result;
}

RunDescription FromProto(const v1::RunDescription& run) {
  RunDescription result;
  result.job = run.job();
  result.server_version = run.server_version();
  result.started_at = FromUnixSeconds(run.started_at_seconds());
  result.config = run.config();
  result.workers = run.workers();
  result.shards = run.shards();
  for (const v1::LoggedTensor& tensor : run.tensors()) {
    result.tensors.emplace_back(tensor.name(), tensor.elements());
  }
  return result;
}

}  // namespace agg
