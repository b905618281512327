// What is written of a report, and what is read of a record.
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
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "server/combine/statistics.h"
#include "server/round/round_numbers.h"

namespace agg {
namespace {

using google::protobuf::FieldDescriptor;

// Null: the number is in `numbers`.
const FieldDescriptor* OwnField(const RoundNumber& number) {
  const FieldDescriptor* field =
      v1::RoundLogRecord::descriptor()->FindFieldByName(number.name);
  const bool is_number = field != nullptr && !field->is_repeated() &&
                         field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  return is_number ? field : nullptr;
}

}  // namespace

void LogNumber(const RoundNumber& number, double value,
               v1::RoundLogRecord* record) {
  const FieldDescriptor* field = OwnField(number);
  if (field != nullptr) {
    record->GetReflection()->SetDouble(record, field, value);
  } else if (!std::isnan(value)) {  // what is not there is read as NaN
    (*record->mutable_numbers())[number.name] = value;
  }
}

double LoggedNumber(const RoundNumber& number,
                    const v1::RoundLogRecord& record) {
  const FieldDescriptor* field = OwnField(number);
  if (field != nullptr) return record.GetReflection()->GetDouble(record, field);
  const auto entry = record.numbers().find(number.name);
  return entry == record.numbers().end()
             ? std::numeric_limits<double>::quiet_NaN()
             : entry->second;
}

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
    const ReportedRow& info = report.rows[i];
    v1::LoggedRow* row = record->add_rows();
    row->set_rank(info.rank);
    row->set_examples(info.examples);
    row->set_accumulation(info.accumulation);
    row->set_loss_scale(info.loss_scale);
    row->set_excluded(std::count(excluded.begin(), excluded.end(), info.rank) !=
                      0);
    row->set_commit_delay_seconds(absl::ToDoubleSeconds(info.commit_delay));
    row->set_norm(At(statistics.row_norms, i));
    row->set_mean_cosine(At(statistics.mean_cosines, i));
    row->set_coefficient(At(statistics.row_coefficients, i));
    row->set_traceparent(info.traceparent);
    row->set_session(info.session);
    row->set_attempt(info.attempt);
    row->mutable_row_crc32c()->Add(info.row_crc32c.begin(),
                                   info.row_crc32c.end());
  }
}

void AddDecision(const Decision& decision, v1::RoundLogRecord* record) {
  for (const SegmentReport& tensor : decision.tensors) {
    record->add_tensor_orthogonality(static_cast<float>(tensor.orthogonality));
    record->add_tensor_norms(static_cast<float>(tensor.row_norm));
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
  record->mutable_tensor_grams()->Add(statistics.tensor_grams.begin(),
                                      statistics.tensor_grams.end());
  for (const ShadowReport& shadow : statistics.shadows) {
    v1::LoggedShadow* logged = record->add_shadows();
    logged->set_rule(std::string(shadow.rule->name));
    logged->set_scope(std::string(ScopeName(shadow.scope)));
    logged->set_norm(shadow.norm);
    logged->set_cosine(shadow.cosine);
  }
}

// A phase's field has its name.
void SetSeconds(const char* phase, double seconds,
                google::protobuf::Message* phases) {
  phases->GetReflection()->SetDouble(
      phases, phases->GetDescriptor()->FindFieldByName(phase), seconds);
}

double SecondsOf(const char* phase, const google::protobuf::Message& phases) {
  return phases.GetReflection()->GetDouble(
      phases, phases.GetDescriptor()->FindFieldByName(phase));
}

void AddTimes(const RoundReport& report, v1::RoundLogRecord* record) {
  for (const TimedPhase& phase : kTimedPhases) {
    SetSeconds(phase.name,
               absl::ToDoubleSeconds(report.durations.*phase.length),
               record->mutable_phases());
  }
  for (const ShardSeconds& seconds : report.shard_seconds) {
    v1::LoggedShard* shard = record->add_shards();
    for (const TimedPhase& phase : kTimedPhases) {
      if (phase.shard == nullptr) continue;
      SetSeconds(phase.name, seconds.*phase.shard, shard);
    }
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
  for (const auto& [rank, client] : run.joined) {
    v1::LoggedWorker* worker = result.add_joined();
    worker->set_rank(rank);
    worker->set_client(client);
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
  for (const v1::LoggedWorker& worker : run.joined()) {
    result.joined.emplace_back(worker.rank(), worker.client());
  }
  return result;
}

namespace {

void SetRows(const v1::RoundLogRecord& record, RoundReport* report) {
  for (const v1::LoggedRow& row : record.rows()) {
    ReportedRow info;
    info.rank = row.rank();
    info.examples = row.examples();
    info.accumulation = row.accumulation();
    info.loss_scale = row.loss_scale();
    info.session = row.session();
    info.attempt = row.attempt();
    info.row_crc32c.assign(row.row_crc32c().begin(), row.row_crc32c().end());
    info.commit_delay = absl::Seconds(row.commit_delay_seconds());
    info.traceparent = row.traceparent();
    report->rows.push_back(std::move(info));
    if (row.excluded()) report->decision.excluded_ranks.push_back(row.rank());
    report->statistics.row_norms.push_back(row.norm());
    report->statistics.mean_cosines.push_back(row.mean_cosine());
    report->statistics.row_coefficients.push_back(row.coefficient());
  }
}

// `coefficients` is row-major, segments x P; a last row that is short is
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
  for (int i = 0; i < record.tensor_orthogonality_size(); ++i) {
    SegmentReport tensor;
    tensor.orthogonality = static_cast<double>(record.tensor_orthogonality(i));
    tensor.row_norm = i < record.tensor_norms_size()
                          ? static_cast<double>(record.tensor_norms(i))
                          : kNan;
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
  statistics->tensor_grams.assign(record.tensor_grams().begin(),
                                  record.tensor_grams().end());
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
  for (const TimedPhase& phase : kTimedPhases) {
    report->durations.*phase.length =
        absl::Seconds(SecondsOf(phase.name, record.phases()));
  }
  for (const v1::LoggedShard& shard : record.shards()) {
    ShardSeconds seconds;
    for (const TimedPhase& phase : kTimedPhases) {
      if (phase.shard == nullptr) continue;
      seconds.*phase.shard = SecondsOf(phase.name, shard);
    }
    report->shard_seconds.push_back(seconds);
  }
}

}  // namespace

// A log may come from another release or be damaged: nothing here relies on
// lists that fit together.
RoundReport FromProto(const v1::RoundLogRecord& record) {
  RoundReport report;
  report.epoch = record.epoch();
  report.history = record.history();
  report.restored = record.restored();
  report.round = record.round();
  report.version = record.version();
  report.finished_at = FromUnixSeconds(record.finished_at_seconds());
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
