// A small HTTP server for a few pages: what monitoring and people look at.
// cpp-httplib does the work; this adds the limits that it lacks.
#ifndef AGG_SERVER_STATUS_HTTP_SERVER_H_
#define AGG_SERVER_STATUS_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tls/tls_session.h"

namespace agg {

struct HttpRequest {
  bool is_head = false;  // HEAD: the answer's body is not sent
  std::string path;      // "/metrics", decoded, without the query
  uint64_t after = 0;    // the query's `after`; 0 if it has none or no number
  std::string authorization;  // the header; "": there is none, or several
  std::string host;           // likewise; "?" if there are several
  std::string from;  // the client's address as gRPC has it, "ipv4:10.0.0.1:40"
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // "": nothing may be loaded, and no page may have it in a frame.
  std::string content_security_policy;
  std::vector<std::string> authenticate;  // WWW-Authenticate, with status 401
  // Called when the system has taken all of the answer, on the handler's
  // thread; null: nobody wants to know.
  std::function<void()> sent;
};

// What clients may take, whatever they do.
struct HttpLimits {
  // Each serves one connection at a time. Further ones wait in the kernel,
  // which bounds them, and meanwhile those that have not sent their request
  // within `patience` are closed, the oldest one first.
  int threads = 16;
  absl::Duration patience = absl::Milliseconds(100);
  size_t request_bytes = size_t{16} << 10;
  absl::Duration request = absl::Seconds(5);  // from a thread's first look
  absl::Duration answer = absl::Seconds(10);  // from its first byte on
};

struct HttpTransport {
  TlsAcceptor* tls = nullptr;  // null: without TLS; outlives the server
  // Tells browsers to come with TLS for a year, to all ports of this host.
  bool strict = false;
};

// HTTP/1.1, one request per connection, GET and HEAD only (others: 405; a
// handler never sees them, and their bodies are not read), no ranges. A
// connection that exceeds a limit is closed. Silent clients make others wait no
// longer than their number over `threads` times `patience`; still nothing that
// must be answered at once, such as a probe, belongs here. Thread-compatible.
class HttpServer {
 public:
  // Called on any of the server's threads, by several at once.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens at once on `host` (an IPv4 or IPv6 address without brackets, or a
  // host name) and `port` (0: any free one). UNAVAILABLE with the system's
  // reason if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& host, int port, Handler handler,
      const HttpLimits& limits = HttpLimits(),
      const HttpTransport& transport = HttpTransport());

  // Stops listening, breaks connections off and joins the threads: at once,
  // except for handlers that are running.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The one that is listened on.
  int port() const;

 private:
  class Listener;
  explicit HttpServer(std::unique_ptr<Listener> listener);
  const std::unique_ptr<Listener> listener_;
};

}  // namespace agg

#endif  // AGG_SERVER_STATUS_HTTP_SERVER_H_
