// cpp-httplib's server with its listening loop, thread pool, parser and
// formatter. What is added: a bound on connections, the limits of HttpStream,
// and an end that waits for no client.
#include "server/status/http_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "httplib.h"
#include "server/base/address.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/status/http_stream.h"

namespace agg {
namespace {

// httplib's backlog of five is full with a few browsers and scrapers at once,
// and the kernel then lets the next one wait for a second.
constexpr int kBacklog = 64;
// Before listening again when the system had no memory for a connection.
constexpr absl::Duration kListenPause = absl::Milliseconds(100);
// The policy of what is no page.
constexpr char kPolicy[] = "Content-Security-Policy";
constexpr char kNothing[] = "default-src 'none'; frame-ancestors 'none'";

// httplib's pool takes connections without end: as many descriptors as the
// process may have, which gRPC needs as well.
class BoundedPool : public httplib::ThreadPool {
 public:
  BoundedPool(int threads, int max_waiting)
      : httplib::ThreadPool(static_cast<size_t>(threads)),
        max_waiting_(max_waiting) {}

  // Holds up the thread that accepts while there are too many.
  void enqueue(std::function<void()> serve) override {
    {
      MutexLock lock(&mutex_);
      while (num_waiting_ >= max_waiting_) changed_.Wait(&mutex_);
      ++num_waiting_;
    }
    httplib::ThreadPool::enqueue([this, serve = std::move(serve)] {
      {
        MutexLock lock(&mutex_);
        --num_waiting_;
        changed_.NotifyAll();
      }
      serve();
    });
  }

 private:
  const int max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

httplib::Headers DefaultHeaders() {
  return {{"Cache-Control", "no-store"},
          {kPolicy, kNothing},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Referrer-Policy", "no-referrer"}};
}

// "" if it has gone already, or is no IP address.
std::string PeerOf(int fd) {
  sockaddr_storage address;
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host,
                  sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return absl::StrCat(address.ss_family == AF_INET6 ? "ipv6:" : "ipv4:",
                      FormatAddress({host, std::atoi(port)}));
}

// httplib says only that it failed; errno is what the system said last.
absl::Status BindError() {
  const bool known =
      errno == EADDRINUSE || errno == EADDRNOTAVAIL || errno == EACCES;
  return absl::UnavailableError(known ? std::strerror(errno)
                                      : "the host name has no address here");
}

}  // namespace

class HttpServer::Listener : public httplib::Server {
 public:
  Listener(HttpServer::Handler handler, const HttpLimits& limits,
           const HttpTransport& transport)
      : handler_(std::move(handler)), limits_(limits), transport_(transport) {
    new_task_queue = [this] {
      return new BoundedPool(limits_.threads, limits_.waiting);
    };
    // httplib's default, SO_REUSEPORT, would let two servers have one port.
    set_socket_options([](socket_t fd) {
      const int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    set_default_headers(DefaultHeaders());
    set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, &response);
          return HandlerResponse::Handled;
        });
  }

  // Stops at once: threads that wait for a client see its end.
  ~Listener() override {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      for (const int fd : open_) shutdown(fd, SHUT_RDWR);
      changed_.NotifyAll();
    }
    // Not httplib's stop(): it does nothing before the thread runs, and closes
    // a descriptor that the thread may be about to use.
    if (listen_fd_ >= 0) shutdown(listen_fd_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    if (listen_fd_ >= 0) close(listen_fd_);
  }

  absl::Status Start(const std::string& host, int port) {
    errno = 0;
    if (port == 0) {
      port_ = bind_to_any_port(host);
    } else {
      port_ = bind_to_port(host, port) ? port : -1;
    }
    if (port_ <= 0) return BindError();
    listen_fd_ = svr_sock_.exchange(INVALID_SOCKET);
    ::listen(listen_fd_, kBacklog);
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  int port() const { return port_; }

 private:
  bool Stopped() {
    MutexLock lock(&mutex_);
    return stopped_;
  }

  // httplib closes its socket and gives up at any error of accept, also where
  // the system lacks memory for a moment: so it gets a copy, and another one.
  void Run() {
    while (!Stopped()) {
      svr_sock_ = dup(listen_fd_);
      try {
        listen_after_bind();
      } catch (const std::exception&) {
        // The pool's threads could not be started: the system lacks memory or
        // threads. Observing must not end the shard; it is tried again.
      }
      MutexLock lock(&mutex_);
      if (!stopped_) changed_.WaitFor(&mutex_, kListenPause);
    }
  }

  // On a thread of the pool.
  bool process_and_close_socket(socket_t fd) override {
    {
      MutexLock lock(&mutex_);
      open_.insert(fd);
      if (stopped_) shutdown(fd, SHUT_RDWR);
    }
    bool answered = false;
    try {
      answered = Converse(fd);
    } catch (...) {
      // Out of memory, for TLS too.
    }
    shutdown(fd, SHUT_RDWR);
    {
      // First, so that the destructor meets no other file of that number.
      MutexLock lock(&mutex_);
      open_.erase(fd);
    }
    close(fd);
    return answered;
  }

  bool Converse(int fd) {
    std::unique_ptr<TlsSession> tls;
    if (transport_.tls != nullptr) {
      tls = transport_.tls->Accept();
      if (tls == nullptr) return false;
    }
    HttpStream stream(fd, limits_.request_bytes, limits_.request,
                      limits_.answer, std::move(tls));
    bool answered = false;
    try {
      bool closed = false;
      answered = process_request(stream, /*close_connection=*/true, closed,
                                 [fd](httplib::Request& request) {
                                   request.remote_addr = PeerOf(fd);
                                   // A header of 8 KB could ask for the page a
                                   // thousand times over.
                                   request.ranges.clear();
                                 });
    } catch (...) {
      // Out of memory, or a header that httplib cannot take: the client learns
      // it from the connection's end.
    }
    stream.End();
    stream.Drain();
    return answered;
  }

  void Answer(const httplib::Request& request, httplib::Response* response) {
    // By a forwarded port it has a name that other programs' ports have, too.
    if (transport_.tls != nullptr && transport_.strict &&
        !absl::StartsWith(request.get_header_value("Host"), "localhost")) {
      response->set_header("Strict-Transport-Security", "max-age=31536000");
    }
    if (request.method != "GET" && request.method != "HEAD") {
      response->status = 405;
      response->set_header("Allow", "GET, HEAD");
      response->set_content("GET and HEAD only\n", "text/plain");
      return;
    }
    HttpRequest plain;
    plain.path = request.path;
    if (!absl::SimpleAtoi(request.get_param_value("after"), &plain.after)) {
      plain.after = 0;
    }
    plain.from = request.remote_addr;
    if (request.get_header_value_count("Authorization") == 1) {
      plain.authorization = request.get_header_value("Authorization");
    }
    const size_t num_hosts = request.get_header_value_count("Host");
    plain.host = num_hosts > 1 ? "?" : request.get_header_value("Host");
    const HttpResponse answer = handler_(plain);
    response->status = answer.status;
    if (!answer.content_security_policy.empty()) {
      response->headers.erase(kPolicy);
      response->set_header(kPolicy, answer.content_security_policy);
    }
    // A line each: not all browsers tell two in one line apart.
    for (const std::string& scheme : answer.authenticate) {
      response->set_header("WWW-Authenticate", scheme);
    }
    response->set_content(answer.body, answer.content_type);
  }

  const HttpServer::Handler handler_;
  const HttpLimits limits_;
  const HttpTransport transport_;
  int port_ = 0;
  int listen_fd_ = -1;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);  // connections being served
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& host, int port, Handler handler,
    const HttpLimits& limits, const HttpTransport& transport) {
  auto listener =
      std::make_unique<Listener>(std::move(handler), limits, transport);
  AGG_RETURN_IF_ERROR(listener->Start(host, port));
  return absl::WrapUnique(new HttpServer(std::move(listener)));
}

HttpServer::HttpServer(std::unique_ptr<Listener> listener)
    : listener_(std::move(listener)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return listener_->port(); }

}  // namespace agg
