// What Prometheus gets from one agg_server process, of rounds and of everything
// else, such as the certificates in use. README.md lists every series.
#ifndef AGG_SERVER_METRICS_METRICS_H_
#define AGG_SERVER_METRICS_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/base/call_counts.h"
#include "server/metrics/family_builder.h"
#include "server/metrics/round_state.h"
#include "server/metrics/status_families.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"

namespace agg {

// When a certificate in use is over.
struct CertificateExpiry {
  std::string file;  // what the configuration calls it: "client_ca"
  absl::Time time = absl::InfiniteFuture();  // so: there is none
};

// Rounds are reported by OnRound; everything else is sampled when Prometheus
// asks, so that no hot path counts anything here. All series exist from the
// start: counters at 0, gauges that are not defined yet at NaN. A scrape never
// mixes two rounds: it reads an immutable state that OnRound replaces, so
// neither waits for the other. Nothing here throws or fails; bytes of names
// that are not UTF-8 are replaced.
class Metrics {
 public:
  // The functions are called by scrapes, from any thread, until the Metrics
  // and every MetricsServer made with it are gone. `shard_status` is required;
  // `job_status` and `round_log` are used on ordinal 0 only, and null or
  // nullopt means that there is no coordinator (yet), or no round log.
  // `calls`: those of gRPC; null: none are counted. `denials`: those that were
  // refused; null, or one that is null: none are counted. `certificates`: those
  // of TLS; null: there are none. `process`: what this one says of itself;
  // null: nothing.
  Metrics(
      const MetricsOptions& options, std::function<ShardStatus()> shard_status,
      std::function<std::optional<JobStatus>()> job_status,
      std::function<std::optional<RoundLogStatus>()> round_log = nullptr,
      std::function<std::vector<CallCount>()> calls = nullptr,
      std::function<const DenialCounts*()> denials = nullptr,
      std::function<std::vector<CertificateExpiry>()> certificates = nullptr,
      std::function<ProcessState()> process = nullptr);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The manifest's tensors (name, elements), in manifest order: the largest
  // ones get series. A later call replaces them; their gauges are undefined
  // until the next round. Not concurrent with OnRound or itself.
  void SetTensors(const std::vector<std::pair<std::string, int64_t>>& tensors);

  // Once per round; not concurrent with itself or SetTensors.
  void OnRound(const RoundReport& report);

  // What a scrape gets now, in Prometheus' text format 0.0.4. Thread-safe.
  std::string Expose() const;

  // Expose as a function that may outlive the Metrics; for MetricsServer.
  std::function<std::string()> Exposer() const;

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_METRICS_H_
