// One process's metrics: which families a scrape has, and when their values are
// read. The families themselves are in round_families and status_families.
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
#include "server/metrics/metrics_options.h"
#include "server/metrics/process_usage.h"
#include "server/metrics/round_families.h"
#include "server/metrics/round_state.h"
#include "server/metrics/status_families.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"

namespace agg {

void AddCallFamilies(const std::vector<CallCount>& counts,
                     FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_grpc_calls_total",
                        "gRPC calls that have ended, by method and code.");
  for (const CallCount& count : counts) {
    builder->Add(static_cast<double>(count.number),
                 {{"method", count.method}, {"code", count.code}});
  }
}

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

namespace {

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
       std::function<std::vector<CertificateExpiry>()> certificates)
      : options_(WithValidNames(options)),
        shard_status_(std::move(shard_status)),
        job_status_(std::move(job_status)),
        round_log_(std::move(round_log)),
        calls_(std::move(calls)),
        denials_(std::move(denials)),
        certificates_(std::move(certificates)),
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
    AddProcessFamilies(ReadProcessUsage(), &builder);
    builder.Counter("aggserver_log_lines_dropped_total",
                    "Lines of the log that are lost: nobody had read stderr.",
                    static_cast<double>(DroppedLogLines()));
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
  // Never null; only through Load and Store.
  std::shared_ptr<const RoundState> state_;
};

Metrics::Metrics(const MetricsOptions& options,
                 std::function<ShardStatus()> shard_status,
                 std::function<std::optional<JobStatus>()> job_status,
                 std::function<std::optional<RoundLogStatus>()> round_log,
                 std::function<std::vector<CallCount>()> calls,
                 std::function<const DenialCounts*()> denials,
                 std::function<std::vector<CertificateExpiry>()> certificates)
    : impl_(std::make_shared<Impl>(options, std::move(shard_status),
                                   std::move(job_status), std::move(round_log),
                                   std::move(calls), std::move(denials),
                                   std::move(certificates))) {}

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
