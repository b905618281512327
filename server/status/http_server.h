// A small HTTP server for a few pages: what monitoring and people look at.
#ifndef AGG_SERVER_STATUS_HTTP_SERVER_H_
#define AGG_SERVER_STATUS_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/clock.h"

namespace agg {

struct HttpRequest {
  std::string path;    // "/metrics", decoded, without the query
  uint64_t after = 0;  // the query's `after`; 0 if it has none or no number
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string content_security_policy;  // "": no header
};

// HTTP/1.1 without TLS, one request per connection, GET and HEAD only (others:
// 405; a handler never sees them). Bounded whatever arrives: five threads, 32
// connections, 16 KiB per request, 5 s to send it, 10 s to take the answer, no
// ranges. Clients that say nothing keep nobody waiting: of too many the oldest
// that has not asked is closed. Thread-compatible.
class HttpServer {
 public:
  // Called on any of the server's threads, by several at once.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens at once on `bind` (an IPv4 or IPv6 address, the latter with or
  // without brackets, or a host name) and `port` (0: any free one).
  // UNAVAILABLE if it cannot be bound. `clock` outlives the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& bind, int port, Handler handler,
      const Clock* clock = Clock::Real());

  // Stops listening, breaks connections off and joins the threads: at once,
  // except for handlers that are running.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The one that is listened on.
  int port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_STATUS_HTTP_SERVER_H_
