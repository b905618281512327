// Serves /metrics over HTTP on a port of its own.
#ifndef AGG_SERVER_METRICS_METRICS_SERVER_H_
#define AGG_SERVER_METRICS_METRICS_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"

namespace agg {

// GET /metrics answers 200 with Content-Type "text/plain; charset=utf-8" (or
// gzip, if asked), anything else 404. Plain HTTP: bind it where only the
// monitoring can reach it. Thread-compatible.
class MetricsServer {
 public:
  // Listens at once on `bind` (an IPv4 or IPv6 address, or a host name) and
  // `port` (0: any free one). INVALID_ARGUMENT for an address or port that
  // cannot be one; UNAVAILABLE, naming the address, if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& bind, int port, const Metrics& metrics);

  // Stops listening; returns once no scrape runs any more. Takes up to two
  // seconds: CivetWeb looks for the end of its threads no more often.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The one that is listened on.
  int port() const;

 private:
  class Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_METRICS_SERVER_H_
