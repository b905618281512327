#include "server/metrics/http_server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <functional>
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
#include "server/metrics/http_connection.h"

namespace agg {
namespace {

// Prometheus, the kubelet's probes, a few browsers; and some to spare for
// connections that say nothing until their time is up.
constexpr int kNumThreads = 8;
constexpr int kBacklog = 64;

// Runs what is accepted. httplib's own pool has a queue without bound; here
// the accepting thread waits while all are busy.
class BoundedTasks : public httplib::TaskQueue {
 public:
  BoundedTasks() {
    for (int i = 0; i < kNumThreads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }

  void enqueue(std::function<void()> task) override {
    MutexLock lock(&mutex_);
    while (tasks_.size() >= kNumThreads) changed_.Wait(&mutex_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }

  void shutdown() override {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> task;
      {
        MutexLock lock(&mutex_);
        while (tasks_.empty() && !stopped_) changed_.Wait(&mutex_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        changed_.NotifyAll();
      }
      task();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// httplib parses requests and writes answers; sockets are handled here.
class Listener : public httplib::Server {
 public:
  explicit Listener(int stop_fd) : stop_fd_(stop_fd) {}

  // After binding: httplib's backlog of five is full with a few browsers and
  // probes at once, and the kernel then lets the next one wait for a second.
  void WidenBacklog() { ::listen(svr_sock_, kBacklog); }

 private:
  bool process_and_close_socket(socket_t fd) override {
    HttpConnection connection(fd, stop_fd_, HttpConnection::Limits());
    bool closed = false;
    bool good = false;
    try {
      good = process_request(connection, /*close_connection=*/true, closed,
                             [](httplib::Request& request) {
                               // A header of 8 KB could ask for the page a
                               // thousand times over.
                               request.ranges.clear();
                             });
    } catch (...) {
      // Out of memory, or a header that httplib cannot take: the client
      // learns it from the connection's end.
    }
    shutdown(fd, SHUT_RDWR);
    close(fd);
    return good;
  }

  const int stop_fd_;
};

std::string WithoutBrackets(const std::string& bind) {
  const bool bracketed =
      bind.size() > 2 && bind.front() == '[' && bind.back() == ']';
  return bracketed ? bind.substr(1, bind.size() - 2) : bind;
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(Handler handler)
      : handler_(std::move(handler)),
        stop_fd_(eventfd(0, EFD_CLOEXEC)),
        listener_(stop_fd_) {
    listener_.new_task_queue = [] { return new BoundedTasks(); };
    // httplib's default, SO_REUSEPORT, would let two servers have one port.
    listener_.set_socket_options([](socket_t fd) {
      const int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    listener_.set_default_headers({{"Cache-Control", "no-store"},
                                   {"X-Content-Type-Options", "nosniff"},
                                   {"Referrer-Policy", "no-referrer"}});
    listener_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, &response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }

  ~Impl() {
    const uint64_t one = 1;
    (void)!write(stop_fd_, &one, sizeof(one));
    if (thread_.joinable()) {
      // stop() before the thread listens would have no effect.
      while (!listener_.is_running() && !ended_) std::this_thread::yield();
      listener_.stop();
      thread_.join();
    }
    close(stop_fd_);
  }

  bool Listen(const std::string& bind, int port) {
    const std::string host = WithoutBrackets(bind);
    if (port == 0) {
      port_ = listener_.bind_to_any_port(host);
    } else {
      port_ = listener_.bind_to_port(host, port) ? port : -1;
    }
    if (port_ <= 0) return false;
    listener_.WidenBacklog();
    thread_ = std::thread([this] {
      listener_.listen_after_bind();
      ended_ = true;
    });
    return true;
  }

  int port() const { return port_; }

 private:
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
  const int stop_fd_;
  Listener listener_;
  int port_ = 0;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& bind, int port, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(handler));
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
