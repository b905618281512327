#include "server/status/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "server/base/mutex.h"
#include "server/status/http_connections.h"

namespace agg {
namespace {

// Prometheus, the kubelet's probes and a browser at the same moment. They
// compute and never wait for a client.
constexpr int kNumThreads = 4;
constexpr int kBacklog = 64;

// One request and its answer, as cpp-httplib wants to see a connection.
class Exchange : public httplib::Stream {
 public:
  explicit Exchange(std::string request) : request_(std::move(request)) {}

  std::string TakeAnswer() { return std::move(answer_); }

  bool is_readable() const override { return begin_ < request_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t num_bytes) override {
    const size_t num_copied = std::min(num_bytes, request_.size() - begin_);
    std::memcpy(bytes, request_.data() + begin_, num_copied);
    begin_ += num_copied;
    return static_cast<ssize_t>(num_copied);
  }
  ssize_t write(const char* bytes, size_t num_bytes) override {
    answer_.append(bytes, num_bytes);
    return static_cast<ssize_t>(num_bytes);
  }
  // Nobody asks: no handler looks at addresses.
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  const std::string request_;
  size_t begin_ = 0;
  std::string answer_;
};

// httplib binds, parses requests and formats answers; connections are
// HttpConnections'.
class Responder : public httplib::Server {
 public:
  // After binding; to be closed by the caller.
  int ListeningSocket() {
    // httplib's backlog of five is full with a few browsers and probes at
    // once, and the kernel then lets the next one wait for a second.
    ::listen(svr_sock_, kBacklog);
    return svr_sock_.exchange(INVALID_SOCKET);
  }

  // Empty: there is nothing to say but goodbye.
  std::string Respond(std::string request) {
    Exchange exchange(std::move(request));
    bool closed = false;
    try {
      process_request(exchange, /*close_connection=*/true, closed,
                      [](httplib::Request& parsed) {
                        // A header of 8 KB could ask for the page a thousand
                        // times over.
                        parsed.ranges.clear();
                      });
    } catch (...) {
      // Out of memory, or a header that httplib cannot take: the client
      // learns it from the connection's end.
      return "";
    }
    return exchange.TakeAnswer();
  }
};

std::string WithoutBrackets(const std::string& bind) {
  const bool bracketed =
      bind.size() > 2 && bind.front() == '[' && bind.back() == ']';
  return bracketed ? bind.substr(1, bind.size() - 2) : bind;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Handler handler, const Clock* clock)
      : handler_(std::move(handler)), clock_(clock) {
    // httplib's default, SO_REUSEPORT, would let two servers have one port.
    responder_.set_socket_options([](socket_t fd) {
      const int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    responder_.set_default_headers({{"Cache-Control", "no-store"},
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"Referrer-Policy", "no-referrer"}});
    responder_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, &response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }

  ~Impl() {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    if (connections_ != nullptr) connections_->Wake();
    for (std::thread& thread : threads_) thread.join();
  }

  bool Listen(const std::string& bind, int port) {
    const std::string host = WithoutBrackets(bind);
    if (port == 0) {
      port_ = responder_.bind_to_any_port(host);
    } else {
      port_ = responder_.bind_to_port(host, port) ? port : -1;
    }
    if (port_ <= 0) return false;
    connections_ = std::make_unique<HttpConnections>(
        responder_.ListeningSocket(), HttpConnections::Limits(), clock_,
        [this](uint64_t id, std::string bytes) {
          MutexLock lock(&mutex_);
          requests_.emplace_back(id, std::move(bytes));
          changed_.NotifyAll();
        });
    threads_.emplace_back([this] { Connect(); });
    for (int i = 0; i < kNumThreads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
    return true;
  }

  int port() const { return port_; }

 private:
  void Connect() {
    for (;;) {
      {
        MutexLock lock(&mutex_);
        if (stopped_) return;
      }
      connections_->RunOnce(absl::InfiniteDuration());
    }
  }

  void Work() {
    for (;;) {
      std::pair<uint64_t, std::string> request;
      {
        MutexLock lock(&mutex_);
        while (requests_.empty() && !stopped_) changed_.Wait(&mutex_);
        if (stopped_) return;
        request = std::move(requests_.front());
        requests_.pop_front();
      }
      connections_->Answer(request.first,
                           responder_.Respond(std::move(request.second)));
    }
  }

  void Answer(const httplib::Request& request, httplib::Response* response) {
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
    const HttpResponse answer = handler_(plain);
    response->status = answer.status;
    if (!answer.content_security_policy.empty()) {
      response->set_header("Content-Security-Policy",
                           answer.content_security_policy);
    }
    response->set_content(answer.body, answer.content_type);
  }

  const Handler handler_;
  const Clock* const clock_;
  Responder responder_;
  int port_ = 0;
  std::unique_ptr<HttpConnections> connections_;  // set once

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // By connection: no more than there may be.
  std::deque<std::pair<uint64_t, std::string>> requests_
      ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& bind, int port, Handler handler, const Clock* clock) {
  auto impl = std::make_unique<Impl>(std::move(handler), clock);
  if (!impl->Listen(bind, port)) {
    return absl::UnavailableError(
        absl::StrCat("the address cannot be bound; is the port in use, and the "
                     "address one of this machine's?"));
  }
  return absl::WrapUnique(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }

}  // namespace agg
