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
#include <map>
#include <memory>
#include <new>
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
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/status/http_stream.h"

namespace agg {
namespace {

// httplib's backlog of five is full with a few browsers and scrapers at once,
// and the kernel then lets the next one wait for a second, or for three. This
// one holds the silent clients of a scan, too.
constexpr int kBacklog = 1024;
// Time between two looks at whether a client has been silent for too long.
constexpr absl::Duration kLookInterval = absl::Milliseconds(10);
// Before listening again when the system had no memory for a connection.
constexpr absl::Duration kListenPause = absl::Milliseconds(100);
// The policy of what is no page.
constexpr char kPolicy[] = "Content-Security-Policy";
constexpr char kNothing[] = "default-src 'none'; frame-ancestors 'none'";

// httplib's pool takes connections without end: as many descriptors as the
// process may have, which gRPC needs as well.
class BoundedPool : public httplib::ThreadPool {
 public:
  // `await_thread` holds up the thread that accepts while none is free.
  BoundedPool(int threads, std::function<void()> await_thread)
      : httplib::ThreadPool(static_cast<size_t>(threads)),
        await_thread_(std::move(await_thread)) {}

  void enqueue(std::function<void()> serve) override {
    await_thread_();
    try {
      httplib::ThreadPool::enqueue(serve);
    } catch (const std::bad_alloc&) {
      // What is taken is given back by who serves: else that thread would be
      // lost, and the socket, and httplib's pool ends the process as it
      // unwinds.
      serve();
    }
  }

 private:
  const std::function<void()> await_thread_;
};

// HttpResponse::sent of the answer that this thread gives: httplib carries
// nothing of the kind from a handler to the end of its answer.
thread_local std::function<void()>* answer_sent = nullptr;

bool HasBytes(int fd) {
  char byte;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

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
      return new BoundedPool(limits_.threads, [this] { AwaitThread(); });
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
      for (const auto& [fd, connection] : open_) shutdown(fd, SHUT_RDWR);
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
  struct Connection {
    absl::Time since;       // a thread has served it
    bool reading = true;    // the request is not complete
    bool expelled = false;  // to make room
  };

  // Waits until a thread is free, and takes it for the next connection.
  void AwaitThread() {
    MutexLock lock(&mutex_);
    while (num_busy_ >= limits_.threads) {
      ExpelOldestSilent();
      changed_.WaitFor(&mutex_, kLookInterval);
    }
    ++num_busy_;
  }

  // Closes the connection that has been served for longest without a request,
  // unless one that was closed has not gone yet. What has sent something that
  // its thread has not read is not silent.
  void ExpelOldestSilent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time before = Clock::Real()->Now() - limits_.patience;
    auto oldest = open_.end();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      const Connection& connection = it->second;
      if (connection.expelled) return;
      if (!connection.reading || connection.since > before ||
          HasBytes(it->first)) {
        continue;
      }
      if (oldest == open_.end() || connection.since < oldest->second.since) {
        oldest = it;
      }
    }
    if (oldest == open_.end()) return;
    oldest->second.expelled = true;
    shutdown(oldest->first, SHUT_RDWR);
  }

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
      open_[fd].since = Clock::Real()->Now();
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
    MutexLock lock(&mutex_);
    --num_busy_;
    changed_.NotifyAll();
    return answered;
  }

  void NoteRequest(int fd) {
    MutexLock lock(&mutex_);
    open_[fd].reading = false;
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
    std::function<void()> sent;
    answer_sent = &sent;
    try {
      bool closed = false;
      answered = process_request(stream, /*close_connection=*/true, closed,
                                 [this, fd](httplib::Request& request) {
                                   NoteRequest(fd);
                                   request.remote_addr = PeerOf(fd);
                                   // A header of 8 KB could ask for the page a
                                   // thousand times over.
                                   request.ranges.clear();
                                 });
    } catch (...) {
      // Out of memory, or a header that httplib cannot take: the client learns
      // it from the connection's end.
    }
    answer_sent = nullptr;
    if (answered && sent != nullptr) sent();
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
    plain.is_head = request.method == "HEAD";
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
    if (answer_sent != nullptr) *answer_sent = answer.sent;
  }

  const HttpServer::Handler handler_;
  const HttpLimits limits_;
  const HttpTransport transport_;
  int port_ = 0;
  int listen_fd_ = -1;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int num_busy_ ABSL_GUARDED_BY(mutex_) = 0;  // threads
  // Those that are being served, by their sockets.
  std::map<int, Connection> open_ ABSL_GUARDED_BY(mutex_);
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
