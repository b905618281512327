#include "server/metrics/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace agg {

HttpConnection::HttpConnection(int fd, int stop_fd, const Limits& limits)
    : fd_(fd),
      stop_fd_(stop_fd),
      read_deadline_(absl::Now() + limits.request),
      write_deadline_(absl::Now() + limits.answer),
      bytes_left_(limits.request_bytes) {}

bool HttpConnection::WaitFor(short events, absl::Time deadline) const {
  for (;;) {
    const int64_t left_ms =
        absl::ToInt64Milliseconds(deadline - absl::Now()) + 1;
    if (left_ms <= 0) return false;
    pollfd fds[] = {{fd_, events, 0}, {stop_fd_, POLLIN, 0}};
    const int num_ready = poll(fds, 2, static_cast<int>(left_ms));
    if (num_ready < 0 && errno != EINTR) return false;
    if (num_ready <= 0) continue;
    if (fds[1].revents != 0) return false;
    if (fds[0].revents != 0) return true;
  }
}

bool HttpConnection::is_readable() const {
  return begin_ < end_ || WaitFor(POLLIN, read_deadline_);
}

bool HttpConnection::is_writable() const {
  return WaitFor(POLLOUT, write_deadline_);
}

ssize_t HttpConnection::read(char* bytes, size_t num_bytes) {
  if (begin_ == end_) {
    if (bytes_left_ == 0 || !WaitFor(POLLIN, read_deadline_)) return -1;
    const ssize_t num_read = recv(
        fd_, buffer_, std::min(sizeof(buffer_), bytes_left_), MSG_DONTWAIT);
    if (num_read <= 0) return num_read;
    begin_ = 0;
    end_ = static_cast<size_t>(num_read);
    bytes_left_ -= end_;
  }
  const size_t num_copied = std::min(num_bytes, end_ - begin_);
  std::memcpy(bytes, buffer_ + begin_, num_copied);
  begin_ += num_copied;
  return static_cast<ssize_t>(num_copied);
}

ssize_t HttpConnection::write(const char* bytes, size_t num_bytes) {
  if (!WaitFor(POLLOUT, write_deadline_)) return -1;
  return send(fd_, bytes, num_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Nobody asks: no handler looks at addresses.
void HttpConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}
void HttpConnection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

socket_t HttpConnection::socket() const { return fd_; }

}  // namespace agg
