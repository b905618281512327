// Everything that watches one agg_server: metrics, status page, traces, round
// log.
#ifndef AGG_SERVER_OBSERVATION_H_
#define AGG_SERVER_OBSERVATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/call_counts.h"
#include "server/base/clock.h"
#include "server/config/options.h"
#include "server/coordinator/coordinator.h"
#include "server/metrics/metrics.h"
#include "server/metrics/scrape_watch.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log.h"
#include "server/round_log/round_record.h"
#include "server/shard/shard_engine.h"
#include "server/status/metrics_server.h"
#include "server/status/status_json.h"
#include "server/tls/tls_reload.h"

namespace agg {

// What others get to see.
struct Exposure {
  bool insecure = false;      // a port is open beyond loopback without TLS
  bool shows_tensors = true;  // their names
};

// Nothing here makes a round wait for I/O or fail. Use: Make, SetCoordinator
// (ordinal 0), Serve, and StopServing before the parts that it watches are
// destroyed.
class Observation {
 public:
  // Opens the round log, on ordinal 0 and if there is one configured:
  // FAILED_PRECONDITION or UNAVAILABLE naming its path. `engine` outlives the
  // serving.
  static absl::StatusOr<std::unique_ptr<Observation>> Make(
      const ServerOptions& options, int ordinal, const ShardEngine* engine,
      const Exposure& exposure);

  // Sets the coordinator, which outlives the serving.
  void SetCoordinator(const Coordinator* coordinator) {
    coordinator_ = coordinator;
  }

  // Sets the counts of calls, which outlive the serving, as what SetDenials is
  // given does.
  void SetCalls(const CallCounts* calls) { calls_ = calls; }

  void SetDenials(const DenialCounts* denials) { denials_ = denials; }

  // Sets what counts the lines that are missing from the audit's file; may be
  // called until the serving ends.
  void SetAuditErrors(std::function<uint64_t()> count) {
    audit_errors_ = std::move(count);
  }

  // Sets the certificates' source, which outlives the serving; null without
  // TLS.
  void SetTls(TlsReload* tls) { tls_ = tls; }

  // Takes the report of each round, in their order, on one thread.
  void OnRound(const RoundReport& report);

  // Serves the metrics port; MetricsServer::Start's errors. Of `pages` it fills
  // in what it knows itself.
  absl::Status Serve(const std::string& bind, int port, MetricsPages pages,
                     const HttpTransport& transport);
  void StopServing() { server_ = nullptr; }
  // Makes scrapes say from here on that the process stops in good order.
  void BeginStop() { scrapes_.BeginStop(); }
  // Serves on until those who scrape regularly have seen that, for `limit` at
  // most.
  void AwaitLastScrapes(absl::Duration limit);
  // What a scrape gets now (Metrics::Expose), whether or not the port is open.
  std::string Exposed() const { return metrics_.Expose(); }
  // Port of the metrics; 0: not served.
  int port() const { return server_ == nullptr ? 0 : server_->port(); }

 private:
  Observation(const ServerOptions& options, int ordinal,
              const ShardEngine* engine, const Exposure& exposure,
              std::unique_ptr<RoundLog> round_log);

  void BeginEpoch();
  // Tells the round log of an epoch that is new, or of who has joined since.
  void DescribeRun(bool is_new_epoch, const RoundReport& report);
  std::optional<JobStatus> Job() const;
  std::string Shown(const std::string& message) const;
  std::vector<CertificateExpiry> Certificates() const;
  std::optional<RoundLogStatus> LogStatus() const;
  ProcessState Process() const;

  const ServerOptions options_;
  const Exposure exposure_;
  const StatusPageOptions page_;
  const ShardEngine* const engine_;
  const Coordinator* coordinator_ = nullptr;
  const CallCounts* calls_ = nullptr;
  const DenialCounts* denials_ = nullptr;
  std::function<uint64_t()> audit_errors_;  // null: nothing is audited
  TlsReload* tls_ = nullptr;
  const std::unique_ptr<RoundLog> round_log_;  // or null
  ScrapeWatch scrapes_{Clock::Real()};
  Metrics metrics_;
  RoundHistory history_;
  // The epoch of the last report; used by OnRound alone.
  uint64_t epoch_ = 0;
  // The run as the round log was told of it, and the sessions of the epoch
  // whose workers are in that; used by OnRound alone, too.
  RunDescription run_;
  std::set<uint64_t> described_sessions_;
  std::unique_ptr<MetricsServer> server_;
};

}  // namespace agg

#endif  // AGG_SERVER_OBSERVATION_H_
