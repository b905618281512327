// Makes options for each observer from the server's, and hands every round's
// report to all of them.
#include "server/observation.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/shard_plan.h"
#include "server/base/address.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"
#include "server/combine/options.h"
#include "server/config/host_budget.h"
#include "server/coordinator/job_record.h"
#include "server/status/round_point.h"

namespace agg {
namespace {

MetricsOptions MakeMetricsOptions(const ServerOptions& options, int ordinal,
                                  const Exposure& exposure) {
  const CombineOptions& combine = options.coordinator.combine;
  const CombinationNames names = NamesOf(combine);
  MetricsOptions metrics;
  metrics.job = options.coordinator.job;
  metrics.ordinal = ordinal;
  metrics.shards = static_cast<int32_t>(options.shards.size());
  metrics.workers = options.coordinator.workers;
  metrics.rule = names.rule;
  metrics.scope = names.scope;
  metrics.step_scale = names.step_scale;
  for (const RuleOptions& rule : combine.shadow_rules) {
    metrics.shadow_rules.push_back(
        {std::string(rule.rule->name), std::string(ScopeName(rule.scope))});
  }
  metrics.max_tensors = options.metrics.max_tensors;
  metrics.max_workers = options.metrics.max_workers;
  metrics.replicated = options.coordinator.replicated;
  metrics.checkpoint_every_seconds =
      absl::ToDoubleSeconds(options.coordinator.checkpoint.every);
  metrics.checkpoint_every_rounds = options.coordinator.checkpoint.every_rounds;
  metrics.insecure = exposure.insecure;
  metrics.version = kVersion;
  return metrics;
}

StatusPageOptions MakePageOptions(const ServerOptions& options, int ordinal,
                                  const Exposure& exposure) {
  StatusPageOptions page;
  page.metrics = MakeMetricsOptions(options, ordinal, exposure);
  page.shards = options.shards;
  page.identities = options.access.on();
  const absl::StatusOr<Address> coordinator = ParseAddress(options.shards[0]);
  if (coordinator.ok()) page.coordinator_host = coordinator->host;
  page.coordinator_port = options.metrics.port;
  page.instance =
      absl::StrCat(absl::Hex(absl::ToUnixNanos(absl::Now())), "-", getpid());
  return page;
}

RoundHistory::Options MakeHistoryOptions(const ServerOptions& options) {
  RoundHistory::Options history;
  history.max_tensors = options.metrics.max_tensors;
  return history;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Observation>> Observation::Make(
    const ServerOptions& options, int ordinal, const ShardEngine* engine,
    const Exposure& exposure) {
  std::unique_ptr<RoundLog> round_log;
  if (ordinal == 0 && !options.round_log.path.empty()) {
    absl::StatusOr<std::unique_ptr<RoundLog>> opened =
        RoundLog::Open(options.round_log);
    if (!opened.ok()) {
      return absl::Status(
          opened.status().code(),
          absl::StrCat("round_log: ", opened.status().message()));
    }
    round_log = *std::move(opened);
    LogInfo("round log: ", options.round_log.path);
  }
  return absl::WrapUnique(new Observation(options, ordinal, engine, exposure,
                                          std::move(round_log)));
}

Observation::Observation(const ServerOptions& options, int ordinal,
                         const ShardEngine* engine, const Exposure& exposure,
                         std::unique_ptr<RoundLog> round_log)
    : options_(options),
      exposure_(exposure),
      page_(MakePageOptions(options, ordinal, exposure)),
      engine_(engine),
      round_log_(std::move(round_log)),
      metrics_(
          page_.metrics, [this] { return engine_->StatusWithDevice(); },
          [this] { return Job(); }, [this] { return LogStatus(); },
          [this] {
            return calls_ == nullptr ? std::vector<CallCount>()
                                     : calls_->counts();
          },
          [this] { return denials_; }, [this] { return Certificates(); },
          [this] { return Process(); }),
      history_(MakeHistoryOptions(options)) {}

std::optional<JobStatus> Observation::Job() const {
  if (coordinator_ == nullptr) return std::nullopt;
  JobStatus job = coordinator_->Status();
  job.message = Shown(job.message);
  job.recovering = Shown(job.recovering);
  job.checkpoint.last_error = Shown(job.checkpoint.last_error);
  for (std::string& error : job.shard_errors) error = Shown(error);
  return job;
}

// Messages name tensors.
std::string Observation::Shown(const std::string& message) const {
  return exposure_.shows_tensors || message.empty() ? message : "see the log";
}

std::vector<CertificateExpiry> Observation::Certificates() const {
  const TlsExpiry expiry = tls_ == nullptr ? TlsExpiry() : tls_->Expires();
  return {{"certificate", expiry.certificate}, {"client_ca", expiry.ca}};
}

std::optional<RoundLogStatus> Observation::LogStatus() const {
  if (round_log_ == nullptr) return std::nullopt;
  return round_log_->Status();
}

ProcessState Observation::Process() const {
  ProcessState process;
  process.stopping = scrapes_.stopping();
  process.memory_limit_bytes = MemoryLimit();
  if (audit_errors_ != nullptr) process.audit_errors = audit_errors_();
  return process;
}

void Observation::AwaitLastScrapes(absl::Duration limit) {
  if (server_ == nullptr) return;
  const absl::Time now = Clock::Real()->Now();
  const absl::Time due = std::min(scrapes_.NextDue(), now + limit);
  if (due <= now) return;
  LogInfo("the metrics port stays open until the stop is scraped, for up to ",
          absl::FormatDuration(due - now));
  // A scrape that is under way may yet put off when the next one is due.
  scrapes_.AwaitScrapes(now + limit);
}

void Observation::BeginEpoch() {
  std::vector<std::pair<std::string, int64_t>> tensors;
  const absl::StatusOr<JoinResult> job = coordinator_->Observe();
  if (job.ok()) {
    for (const TensorSpec& tensor : job->manifest->tensors) {
      tensors.emplace_back(tensor.name, NumElements(tensor));
    }
  }
  std::vector<std::pair<std::string, int64_t>> shown = tensors;
  for (size_t i = 0; !exposure_.shows_tensors && i < shown.size(); ++i) {
    shown[i].first = absl::StrCat("#", i);
  }
  metrics_.SetTensors(shown);
  history_.SetTensors(shown);
  run_.job = options_.coordinator.job;
  run_.server_version = kVersion;
  run_.started_at = absl::Now();
  run_.config = options_.config_text;
  run_.workers = options_.coordinator.workers;
  run_.shards = static_cast<int32_t>(options_.shards.size());
  run_.tensors = std::move(tensors);
  described_sessions_.clear();
}

void Observation::DescribeRun(bool is_new_epoch, const RoundReport& report) {
  bool is_new = is_new_epoch;
  for (const ReportedRow& row : report.rows) {
    is_new |= described_sessions_.insert(row.session).second;
  }
  if (!is_new || round_log_ == nullptr) return;
  run_.joined.clear();
  for (const WorkerState& worker : coordinator_->Status().workers) {
    run_.joined.emplace_back(worker.rank, worker.client);
  }
  round_log_->SetRun(run_);
}

void Observation::OnRound(const RoundReport& report) {
  // Restored ones are of former epochs, but of this one's model.
  const bool is_new_epoch =
      report.epoch != epoch_ && !(report.restored && epoch_ != 0);
  if (is_new_epoch) {
    epoch_ = report.epoch;
    BeginEpoch();
  }
  DescribeRun(is_new_epoch, report);
  if (report.restored) {
    if (round_log_ != nullptr) round_log_->Append(report);
    return;
  }
  metrics_.OnRound(report);
  if (exposure_.shows_tensors || report.message.empty()) {
    history_.Add(report);
  } else {
    RoundReport shown = report;
    shown.message = Shown(report.message);
    history_.Add(shown);
  }
  if (round_log_ != nullptr) round_log_->Append(report);
}

absl::Status Observation::Serve(const std::string& bind, int port,
                                MetricsPages pages,
                                const HttpTransport& transport) {
  pages.note = [this] {
    const std::optional<JobStatus> job = Job();
    return job.has_value() ? job->message : "";
  };
  pages.on_scrape = [this](const std::string& from) {
    return scrapes_.OnScrape(from);
  };
  pages.status_json = [this](uint64_t after) {
    return StatusJson(page_, engine_->StatusWithDevice(), Job(),
                      coordinator_ == nullptr ? nullptr : &history_,
                      LogStatus(), after);
  };
  if (coordinator_ != nullptr) {
    pages.trace_json = [this] {
      return ChromeTrace(page_.metrics.job, history_.Points());
    };
  }
  AGG_ASSIGN_OR_RETURN(
      server_,
      MetricsServer::Start(bind, port, metrics_, std::move(pages), transport));
  LogInfo("metrics and status page on port ", server_->port(),
          transport.tls == nullptr ? "" : ", with TLS");
  return absl::OkStatus();
}

}  // namespace agg
