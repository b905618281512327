#include "server/status/http_connections.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace agg {
namespace {

// Accepted at a time: those that are there have their turn in between.
constexpr int kAcceptBatch = 16;
// When the process has no descriptor left.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

void SetNonBlocking(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

HttpConnections::HttpConnections(int listen_fd, const Limits& limits,
                                 const Clock* clock, RequestCallback on_request)
    : listen_fd_(listen_fd),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      limits_(limits),
      clock_(clock),
      on_request_(std::move(on_request)) {
  SetNonBlocking(listen_fd_);
}

HttpConnections::~HttpConnections() {
  close(listen_fd_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = Close(it);
  }
  close(wake_fd_);
}

void HttpConnections::Answer(uint64_t id, std::string bytes) {
  {
    MutexLock lock(&mutex_);
    answers_.emplace_back(id, std::move(bytes));
  }
  Wake();
}

void HttpConnections::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

void HttpConnections::RunOnce(absl::Duration wait) {
  std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
  std::vector<uint64_t> ids;
  for (const auto& [id, connection] : connections_) {
    if (connection.state == State::kWaiting) continue;
    const short events = connection.state == State::kReading ? POLLIN : POLLOUT;
    fds.push_back({connection.fd, events, 0});
    ids.push_back(id);
  }
  const bool accepting = clock_->Now() >= accept_at_ && HasRoom();
  if (accepting) fds.push_back({listen_fd_, POLLIN, 0});
  if (poll(fds.data(), fds.size(), PollMilliseconds(wait)) > 0) {
    uint64_t count;
    (void)!read(wake_fd_, &count, sizeof(count));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (fds[i + 1].revents == 0) continue;
      const auto it = connections_.find(ids[i]);
      Connection* const connection = &it->second;
      const bool alive = connection->state == State::kReading
                             ? Read(ids[i], connection)
                             : Write(connection);
      if (!alive) Close(it);
    }
    if (accepting && fds.back().revents != 0) Accept();
  }
  TakeAnswers();
  CloseExpired();
}

int HttpConnections::PollMilliseconds(absl::Duration wait) const {
  const absl::Time now = clock_->Now();
  absl::Time next = now < accept_at_ ? accept_at_ : absl::InfiniteFuture();
  for (const auto& [id, connection] : connections_) {
    next = std::min(next, connection.deadline);
  }
  const absl::Duration left =
      std::min(wait, std::max(next - now, absl::ZeroDuration()));
  if (left == absl::InfiniteDuration()) return -1;
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
  return static_cast<int>(std::min<int64_t>(milliseconds, 60000));
}

void HttpConnections::TakeAnswers() {
  std::vector<std::pair<uint64_t, std::string>> answers;
  {
    MutexLock lock(&mutex_);
    answers.swap(answers_);
  }
  for (auto& [id, bytes] : answers) {
    const auto it = connections_.find(id);
    if (it == connections_.end() || it->second.state != State::kWaiting) {
      continue;
    }
    it->second.state = State::kWriting;
    it->second.deadline = clock_->Now() + limits_.answer;
    it->second.bytes = std::move(bytes);
    if (!Write(&it->second)) Close(it);
  }
}

bool HttpConnections::Read(uint64_t id, Connection* connection) {
  std::string* const bytes = &connection->bytes;
  char buffer[4096];
  for (;;) {
    const size_t room = limits_.request_bytes - bytes->size();
    if (room == 0) return false;
    const ssize_t num_read =
        recv(connection->fd, buffer, std::min(sizeof(buffer), room), 0);
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read < 0) return WouldBlock();
    if (num_read == 0) return false;
    // The end of the head may lie across two reads.
    const size_t from = bytes->size() < 3 ? 0 : bytes->size() - 3;
    bytes->append(buffer, static_cast<size_t>(num_read));
    if (bytes->find("\r\n\r\n", from) == std::string::npos) continue;
    connection->state = State::kWaiting;
    connection->deadline = absl::InfiniteFuture();
    on_request_(id, std::exchange(*bytes, std::string()));
    return true;
  }
}

bool HttpConnections::Write(Connection* connection) {
  while (connection->num_written < connection->bytes.size()) {
    const ssize_t num_sent =
        send(connection->fd, connection->bytes.data() + connection->num_written,
             connection->bytes.size() - connection->num_written, MSG_NOSIGNAL);
    if (num_sent < 0 && errno == EINTR) continue;
    if (num_sent < 0) return WouldBlock();
    connection->num_written += static_cast<size_t>(num_sent);
  }
  return false;
}

void HttpConnections::CloseExpired() {
  const absl::Time now = clock_->Now();
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = it->second.deadline <= now ? Close(it) : std::next(it);
  }
}

HttpConnections::Connections::iterator HttpConnections::Dispensable() {
  auto writing = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->second.state == State::kReading) return it;
    if (it->second.state == State::kWriting && writing == connections_.end()) {
      writing = it;
    }
  }
  return writing;
}

bool HttpConnections::HasRoom() {
  return num_connections() < limits_.connections ||
         Dispensable() != connections_.end();
}

void HttpConnections::Accept() {
  for (int i = 0; i < kAcceptBatch && HasRoom(); ++i) {
    const int fd =
        accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
          errno == ENOBUFS) {
        accept_at_ = clock_->Now() + kAcceptPause;
      }
      return;
    }
    if (num_connections() >= limits_.connections) Close(Dispensable());
    const uint64_t id = ++last_id_;
    Connection* const connection = &connections_[id];
    connection->fd = fd;
    connection->deadline = clock_->Now() + limits_.request;
    // What has come along with it counts before it may have to give way.
    if (!Read(id, connection)) Close(connections_.find(id));
  }
}

HttpConnections::Connections::iterator HttpConnections::Close(
    Connections::iterator connection) {
  // Bytes that nobody has read would make the kernel drop what is still to be
  // sent; so many as an honest client may have sent beyond its request.
  char unread[4096];
  for (int i = 0; i < 16; ++i) {
    if (recv(connection->second.fd, unread, sizeof(unread), MSG_DONTWAIT) <=
        0) {
      break;
    }
  }
  shutdown(connection->second.fd, SHUT_RDWR);
  close(connection->second.fd);
  return connections_.erase(connection);
}

}  // namespace agg
