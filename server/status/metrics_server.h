// The metrics port: what monitoring and people get over HTTP. (Kubernetes'
// probes ask the gRPC port, which no silent HTTP client can hold up.)
#ifndef AGG_SERVER_STATUS_METRICS_SERVER_H_
#define AGG_SERVER_STATUS_METRICS_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"
#include "server/status/http_server.h"

namespace agg {

// What the pages are made of; called by requests, from any thread. A null one
// has no page (404); without `ready`, /readyz is always 200.
struct MetricsPages {
  std::function<absl::Status()> ready;  // OK, or why not
  // What people should know of a server that is ready; "" or null: nothing.
  std::function<std::string()> note;
  std::function<std::string(uint64_t after)> status_json;
  std::function<std::string()> trace_json;
  // Whether who sends that header, from that address, may read all this: OK,
  // UNAUTHENTICATED or PERMISSION_DENIED. Null: everybody may.
  std::function<absl::Status(const std::string& authorization,
                             const std::string& from)>
      admit;
  // Whether the sender may read /metrics, in the same way. Null: as `admit`.
  std::function<absl::Status(const std::string& authorization,
                             const std::string& from)>
      admit_scrape;
  // Whether the port may be asked for by that Host header. Null: by any.
  std::function<absl::Status(const std::string& host, const std::string& from)>
      admit_host;
  // A scrape from that address begins. Called before its text is made; what it
  // returns is called when the text has been sent. Null: nobody wants to know.
  std::function<std::function<void()>(const std::string& from)> on_scrape;
  // Whether /healthz and /readyz answer everybody, though in one word alone.
  bool open_health = true;
};

//   /metrics      Prometheus' text format 0.0.4
//   /healthz      200 "ok" while the process lives
//   /readyz       200 "ok" and the note, or 503 with the reason; for who may
//                 not read, and need not, without either
//   /             the status page, for people; it polls /status.json
//   /status.json  what it shows; ?after=N: rounds from sequence number N on
//   /trace.json   the last rounds as a Chrome trace
// Who may not read it gets 401 or 403, who asks for another host 421.
// HttpLimits states the limits. Thread-compatible.
class MetricsServer {
 public:
  // Listens at once on `bind` (an IPv4 address, an IPv6 address with or without
  // brackets, or a host name) and `port` (0: any free one). INVALID_ARGUMENT
  // for an address or port that cannot be one; UNAVAILABLE, naming the address
  // and the reason, if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& bind, int port, const Metrics& metrics,
      MetricsPages pages = {}, const HttpTransport& transport = {});

  // Stops listening and breaks connections off: returns at once, or when the
  // functions that are being called have.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The port that is listened on.
  int port() const;

 private:
  explicit MetricsServer(std::unique_ptr<HttpServer> server);
  const std::unique_ptr<HttpServer> server_;
};

}  // namespace agg

#endif  // AGG_SERVER_STATUS_METRICS_SERVER_H_
