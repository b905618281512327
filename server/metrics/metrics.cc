// One process's metrics: which families a scrape has, and when their values are
// read, and the families of rounds, calls and certificates. What is sampled of
// the job, the shard and the process is in status_families.
#include "server/metrics/metrics.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "server/base/call_counts.h"
#include "server/base/log.h"
#include "server/base/utf8.h"
#include "server/metrics/family_builder.h"
#include "server/metrics/round_state.h"
#include "server/metrics/status_families.h"
#include "server/round/combination_names.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"

namespace agg {
namespace {

struct WorkerGauge {
  const char* name;
  const char* help;
  double WorkerGauges::*value;
};

constexpr WorkerGauge kWorkerGauges[] = {
    {"aggserver_worker_coefficient",
     "Weight of a worker's gradient in the combination.",
     &WorkerGauges::coefficient},
    {"aggserver_adacons_coefficient",
     "Weight that AdaCons, applied or shadow, gave a worker's gradient.",
     &WorkerGauges::adacons_coefficient},
    {"aggserver_worker_gradient_norm", "Norm of a worker's gradient.",
     &WorkerGauges::gradient_norm},
    {"aggserver_worker_cosine_mean",
     "Mean cosine of a worker's gradient to the others'.",
     &WorkerGauges::mean_cosine},
    {"aggserver_worker_outlier_score",
     "Deviations of the logarithm of a gradient's norm from the median.",
     &WorkerGauges::outlier_score},
};

void AddTotals(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_rounds_total", "Rounds by outcome.");
  builder->Add(static_cast<double>(state.applied_rounds),
               {{"outcome", "applied"}});
  builder->Add(static_cast<double>(state.skipped_rounds),
               {{"outcome", "skipped"}});
  builder->BeginCounter("aggserver_fallbacks_total",
                        "Rounds in which a rule fell back, by kind.");
  builder->Add(static_cast<double>(state.compensated_rounds),
               {{"kind", "compensated_gram"}});
  builder->Add(static_cast<double>(state.adacons_fallback_rounds),
               {{"kind", "adacons_mean"}});
  builder->Add(static_cast<double>(state.short_rounds), {{"kind", "few_rows"}});
  builder->Add(static_cast<double>(state.external_fallback_rounds),
               {{"kind", "external_rule"}});
  builder->BeginCounter("aggserver_narrowed_values_total",
                        "Values that pull_dtype cannot hold, by what they "
                        "become.");
  builder->Add(static_cast<double>(state.narrowed_to_infinity),
               {{"becomes", "infinity"}});
  builder->Add(static_cast<double>(state.narrowed_to_zero),
               {{"becomes", "zero"}});
  builder->Counter("aggserver_examples_total",
                   "Training examples that entered applied rounds.",
                   static_cast<double>(state.examples));
  builder->Counter("aggserver_excluded_rows_total",
                   "Gradients left out: not finite, or not on all shards.",
                   static_cast<double>(state.excluded_rows));
  builder->Counter("aggserver_outlier_rows_total",
                   "Gradients with an unusual norm, left out or not.",
                   static_cast<double>(state.outlier_rows));
}

void AddWorkerTotals(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_worker_excluded_rows_total",
                        "A worker's gradients left out, not being finite.");
  for (size_t i = 0; i < state.excluded_by_rank.size(); ++i) {
    builder->Add(static_cast<double>(state.excluded_by_rank[i]),
                 {{"worker", std::to_string(i)}});
  }
  builder->BeginCounter("aggserver_worker_outlier_rows_total",
                        "A worker's gradients with an unusual norm.");
  for (size_t i = 0; i < state.outliers_by_rank.size(); ++i) {
    builder->Add(static_cast<double>(state.outliers_by_rank[i]),
                 {{"worker", std::to_string(i)}});
  }
  builder->BeginCounter("aggserver_worker_delay_seconds_total",
                        "How long a worker's commits came after the first "
                        "ones of their rounds.");
  for (size_t i = 0; i < state.delay_seconds_by_rank.size(); ++i) {
    builder->Add(state.delay_seconds_by_rank[i],
                 {{"worker", std::to_string(i)}});
  }
}

void AddPhases(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginHistogram(
      "aggserver_round_duration_seconds",
      "Wall time of a round's phases, as the coordinator saw them.");
  for (size_t i = 0; i < kTimedPhases.size(); ++i) {
    builder->AddHistogram(state.phases[i], {{"phase", kTimedPhases[i].name}});
  }
  builder->BeginHistogram("aggserver_round_seconds",
                          "Wall time of complete rounds: all phases.");
  builder->AddHistogram(state.rounds, {});
  builder->Gauge("aggserver_last_round_timestamp_seconds",
                 "Unix time at which the last round ended.",
                 state.last_round_time);
}

// A series for each number, and where tensors have values of their own, one for
// each selected tensor. The model's value then has tensor="", which to
// Prometheus is the same as no such label.
void AddNumber(size_t index, const RoundState& state, FamilyBuilder* builder) {
  const RoundNumber& number = RoundNumbers()[index];
  const std::string metric = NameIn(number, &RoundOutlets::metric);
  if (metric.empty()) return;
  if (number.set_by == SetBy::kSum) {
    builder->BeginCounter("aggserver_" + metric, number.help);
  } else {
    builder->BeginGauge("aggserver_" + metric, number.help);
  }
  const double value = state.gauges.numbers[index];
  if (number.tensor == nullptr) {
    builder->Add(value);
    return;
  }
  builder->Add(value, {{"tensor", ""}});
  const auto& selected = state.selection->tensors;
  const auto& gauges = state.gauges.tensors;
  for (size_t i = 0; i < selected.size(); ++i) {
    builder->Add(i < gauges.size() ? gauges[i].*number.tensor : kUndefined,
                 {{"tensor", selected[i].name}});
  }
}

void AddShadows(const MetricsOptions& options, const RoundState& state,
                FamilyBuilder* builder) {
  const auto add = [&](const char* name, const char* help,
                       double ShadowGauges::*value) {
    builder->BeginGauge(name, help);
    for (size_t i = 0; i < options.shadow_rules.size(); ++i) {
      // The index keeps two shadows of one rule apart.
      builder->Add(state.gauges.shadows[i].*value,
                   {{"shadow", std::to_string(i)},
                    {"rule", options.shadow_rules[i].rule},
                    {"scope", options.shadow_rules[i].scope}});
    }
  };
  add("aggserver_shadow_cosine",
      "Cosine of a shadow rule's result to the applied one.",
      &ShadowGauges::cosine);
  add("aggserver_shadow_norm", "Norm of a shadow rule's result.",
      &ShadowGauges::norm);
}

// Adds the families under "Rounds", "Geometry" and "Step scale" of README.md.
// `combination` is of the open round: other labels from one scrape to the next
// mean that it was changed, and the series of the former ones end.
void AddRoundFamilies(const MetricsOptions& options,
                      const CombinationNames& combination,
                      const RoundState& state, FamilyBuilder* builder) {
  builder->Info("aggserver_combination_info", "What is in effect; always 1.",
                {{"rule", combination.rule},
                 {"scope", combination.scope},
                 {"step_scale", combination.step_scale}});
  AddTotals(state, builder);
  AddWorkerTotals(state, builder);
  AddPhases(state, builder);
  builder->Gauge("aggserver_tensors", "Tensors of the manifest.",
                 static_cast<double>(state.selection->num_tensors));
  for (size_t i = 0; i < RoundNumbers().size(); ++i) {
    AddNumber(i, state, builder);
  }
  for (const WorkerGauge& gauge : kWorkerGauges) {
    builder->BeginGauge(gauge.name, gauge.help);
    for (const WorkerGauges& worker : state.gauges.workers) {
      builder->Add(worker.*gauge.value,
                   {{"worker", std::to_string(worker.rank)}});
    }
  }
  AddShadows(options, state, builder);
}

// Adds the families under "Calls" of README.md.
void AddCallFamilies(const std::vector<CallCount>& counts,
                     FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_grpc_calls_total",
                        "gRPC calls that have ended, by method and code.");
  for (const CallCount& count : counts) {
    builder->Add(static_cast<double>(count.number),
                 {{"method", count.method}, {"code", count.code}});
  }
}

// Adds the families of calls that were refused because of who made them; null:
// none were.
void AddDenialFamilies(const DenialCounts* counts, FamilyBuilder* builder) {
  static const DenialCounts* const none = new DenialCounts;
  if (counts == nullptr) counts = none;
  builder->Gauge("aggserver_identities",
                 "Identities of the configuration; 0: everybody who reaches "
                 "the port may do everything.",
                 static_cast<double>(counts->num_identities()));
  builder->BeginCounter("aggserver_denied_total",
                        "Calls and connections that were refused: for who made "
                        "them, or by a limit.");
  for (size_t i = 0; i < kNumDenialReasons; ++i) {
    const auto reason = static_cast<DenialReason>(i);
    builder->Add(static_cast<double>(counts->count(reason)),
                 {{"reason", std::string(DenialName(reason))}});
  }
}

// NaN and not +Inf, so that a job without TLS meets no condition.
void AddCertificateFamilies(const std::vector<CertificateExpiry>& expiries,
                            FamilyBuilder* builder) {
  builder->BeginGauge("aggserver_certificate_expiry_timestamp_seconds",
                      "Unix time at which what security.tls has in use "
                      "expires; NaN without.");
  for (const CertificateExpiry& expiry : expiries) {
    const double seconds =
        expiry.time == absl::InfiniteFuture()
            ? std::numeric_limits<double>::quiet_NaN()
            : static_cast<double>(absl::ToUnixSeconds(expiry.time));
    builder->Add(seconds, {{"file", expiry.file}});
  }
}

MetricsOptions WithValidNames(MetricsOptions options) {
  options.job = Shown(options.job);
  options.rule = Shown(options.rule);
  options.scope = Shown(options.scope);
  options.step_scale = Shown(options.step_scale);
  options.version = Shown(options.version);
  for (ShadowNames& shadow : options.shadow_rules) {
    shadow.rule = Shown(shadow.rule);
    shadow.scope = Shown(shadow.scope);
  }
  return options;
}

}  // namespace

class Metrics::Impl {
 public:
  Impl(const MetricsOptions& options, std::function<ShardStatus()> shard_status,
       std::function<std::optional<JobStatus>()> job_status,
       std::function<std::optional<RoundLogStatus>()> round_log,
       std::function<std::vector<CallCount>()> calls,
       std::function<const DenialCounts*()> denials,
       std::function<std::vector<CertificateExpiry>()> certificates,
       std::function<ProcessState()> process)
      : options_(WithValidNames(options)),
        shard_status_(std::move(shard_status)),
        job_status_(std::move(job_status)),
        round_log_(std::move(round_log)),
        calls_(std::move(calls)),
        denials_(std::move(denials)),
        certificates_(std::move(certificates)),
        process_(std::move(process)),
        state_(std::make_shared<RoundState>(InitialRoundState(options_))) {}

  void SetTensors(const std::vector<std::pair<std::string, int64_t>>& tensors) {
    auto next = std::make_shared<RoundState>(*Load());
    next->selection = std::make_shared<TensorSelection>(
        SelectTensors(tensors, options_.max_tensors));
    next->gauges.tensors.assign(next->selection->tensors.size(),
                                UndefinedTensor());
    Store(std::move(next));
  }

  void OnRound(const RoundReport& report) {
    Store(std::make_shared<RoundState>(
        NextRoundState(options_, *Load(), report, absl::Now())));
  }

  std::vector<prometheus::MetricFamily> Collect() const {
    FamilyBuilder builder(
        {{"job", options_.job}, {"shard", std::to_string(options_.ordinal)}});
    builder.Info("aggserver_build_info", "What is running; always 1.",
                 {{"version", options_.version}});
    builder.Gauge("aggserver_insecure",
                  "1: a port is open beyond loopback without TLS.",
                  options_.insecure ? 1.0 : 0.0);
    builder.Gauge("aggserver_shards", "Shards that the job has.",
                  options_.shards);
    if (options_.ordinal == 0) {
      const std::optional<JobStatus> status =
          job_status_ ? job_status_() : std::nullopt;
      const CombinationNames combination =
          status.has_value() ? status->combination
                             : CombinationNames{options_.rule, options_.scope,
                                                options_.step_scale};
      AddRoundFamilies(options_, combination, *Load(), &builder);
      AddJobFamilies(options_, status, &builder);
      AddRoundLogFamilies(round_log_ ? round_log_() : std::nullopt, &builder);
    }
    AddShardFamilies(shard_status_(), &builder);
    AddCallFamilies(calls_ ? calls_() : std::vector<CallCount>(), &builder);
    AddDenialFamilies(denials_ ? denials_() : nullptr, &builder);
    AddCertificateFamilies(
        certificates_ ? certificates_() : std::vector<CertificateExpiry>(),
        &builder);
    AddProcessFamilies(ReadProcessUsage(),
                       process_ ? process_() : ProcessState(), &builder);
    builder.Counter("aggserver_log_lines_dropped_total",
                    "Lines of the log that are lost: nobody had read stderr.",
                    static_cast<double>(DroppedLogLines()));
    builder.Counter("aggserver_log_lines_held_back_total",
                    "Lines of the log that are left out, being like others of "
                    "the same minute.",
                    static_cast<double>(HeldBackLogLines()));
    return builder.Take();
  }

 private:
  std::shared_ptr<const RoundState> Load() const {
    return std::atomic_load(&state_);
  }
  void Store(std::shared_ptr<const RoundState> state) {
    std::atomic_store(&state_, std::move(state));
  }

  const MetricsOptions options_;
  const std::function<ShardStatus()> shard_status_;
  const std::function<std::optional<JobStatus>()> job_status_;
  const std::function<std::optional<RoundLogStatus>()> round_log_;
  const std::function<std::vector<CallCount>()> calls_;
  const std::function<const DenialCounts*()> denials_;
  const std::function<std::vector<CertificateExpiry>()> certificates_;
  const std::function<ProcessState()> process_;
  // Never null; only through Load and Store.
  std::shared_ptr<const RoundState> state_;
};

Metrics::Metrics(const MetricsOptions& options,
                 std::function<ShardStatus()> shard_status,
                 std::function<std::optional<JobStatus>()> job_status,
                 std::function<std::optional<RoundLogStatus>()> round_log,
                 std::function<std::vector<CallCount>()> calls,
                 std::function<const DenialCounts*()> denials,
                 std::function<std::vector<CertificateExpiry>()> certificates,
                 std::function<ProcessState()> process)
    : impl_(std::make_shared<Impl>(
          options, std::move(shard_status), std::move(job_status),
          std::move(round_log), std::move(calls), std::move(denials),
          std::move(certificates), std::move(process))) {}

Metrics::~Metrics() = default;

void Metrics::SetTensors(
    const std::vector<std::pair<std::string, int64_t>>& tensors) {
  impl_->SetTensors(tensors);
}

void Metrics::OnRound(const RoundReport& report) { impl_->OnRound(report); }

std::string Metrics::Expose() const { return Exposer()(); }

std::function<std::string()> Metrics::Exposer() const {
  return [impl = impl_] {
    return prometheus::TextSerializer().Serialize(impl->Collect());
  };
}

}  // namespace agg
