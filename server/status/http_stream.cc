// poll() with a deadline before each read and write; httplib asks for single
// bytes, which a buffer gives it.
#include "server/status/http_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "server/base/clock.h"

namespace agg {
namespace {

constexpr int kMaxDrains = 16;  // of a buffer each: 64 KiB
// A client's share of a handshake is a few KiB, and a record adds some bytes.
constexpr size_t kMaxTlsBytes = size_t{64} << 10;

// Whether `events` came before `deadline`; errors and hang-ups count as such,
// and the next read or write meets them.
bool WaitFor(int fd, short events, absl::Time deadline) {
  for (;;) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    // Rounded up: rounded down it would spin through the last millisecond.
    const int64_t milliseconds =
        absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
    pollfd poll_fd = {fd, events, 0};
    const int ready =
        poll(&poll_fd, 1,
             static_cast<int>(std::min<int64_t>(milliseconds, 60 * 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool WouldBlock() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

HttpStream::HttpStream(int fd, size_t max_read_bytes, absl::Duration read_time,
                       absl::Duration write_time,
                       std::unique_ptr<TlsSession> tls)
    : fd_(fd),
      write_time_(write_time),
      read_deadline_(Clock::Real()->Now() + read_time),
      may_read_(max_read_bytes),
      may_receive_(max_read_bytes + kMaxTlsBytes),
      tls_(std::move(tls)) {}

ssize_t HttpStream::read(char* bytes, size_t num_bytes) {
  if (begin_ == end_) {
    const size_t room = std::min(buffer_.size(), may_read_);
    if (room == 0) return -1;
    const ssize_t num_read = Receive(buffer_.data(), room);
    if (num_read <= 0) return num_read;
    begin_ = 0;
    end_ = static_cast<size_t>(num_read);
    may_read_ -= end_;
  }
  const size_t num_copied = std::min(num_bytes, end_ - begin_);
  std::memcpy(bytes, buffer_.data() + begin_, num_copied);
  begin_ += num_copied;
  return static_cast<ssize_t>(num_copied);
}

ssize_t HttpStream::Receive(char* bytes, size_t num_bytes) {
  return tls_ == nullptr ? ReceiveRaw(bytes, num_bytes)
                         : ReceiveTls(bytes, num_bytes);
}

ssize_t HttpStream::ReceiveTls(char* bytes, size_t num_bytes) {
  for (;;) {
    const ssize_t num_read = tls_->Read(bytes, num_bytes);
    if (!Flush()) return -1;
    if (num_read > 0) return num_read;
    if (num_read < 0 || may_receive_ == 0) return -1;
    std::array<char, 4096> raw;
    const ssize_t num_raw =
        ReceiveRaw(raw.data(), std::min(raw.size(), may_receive_));
    if (num_raw <= 0) return num_raw;
    may_receive_ -= static_cast<size_t>(num_raw);
    tls_->Feed({raw.data(), static_cast<size_t>(num_raw)});
  }
}

ssize_t HttpStream::ReceiveRaw(char* bytes, size_t num_bytes) {
  for (;;) {
    if (!WaitFor(fd_, POLLIN, read_deadline_)) return -1;
    const ssize_t num_read = recv(fd_, bytes, num_bytes, MSG_DONTWAIT);
    if (num_read >= 0 || !WouldBlock()) return num_read;
  }
}

ssize_t HttpStream::write(const char* bytes, size_t num_bytes) {
  if (tls_ == nullptr) return SendRaw(bytes, num_bytes);
  // Until here it was the handshake's.
  if (!std::exchange(answering_, true))
    write_deadline_ = absl::InfiniteFuture();
  const ssize_t num_written = tls_->Write({bytes, num_bytes});
  return num_written > 0 && Flush() ? num_written : -1;
}

ssize_t HttpStream::SendRaw(const char* bytes, size_t num_bytes) {
  if (write_deadline_ == absl::InfiniteFuture()) {
    write_deadline_ = Clock::Real()->Now() + write_time_;
  }
  for (;;) {
    if (!WaitFor(fd_, POLLOUT, write_deadline_)) return -1;
    // Without MSG_DONTWAIT it would wait until the last byte is taken.
    const ssize_t num_sent =
        send(fd_, bytes, num_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (num_sent >= 0 || !WouldBlock()) return num_sent;
  }
}

bool HttpStream::Flush() {
  const std::string output = tls_->TakeOutput();
  for (size_t sent = 0; sent < output.size();) {
    const ssize_t count = SendRaw(output.data() + sent, output.size() - sent);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

void HttpStream::End() {
  if (tls_ == nullptr) return;
  tls_->End();
  Flush();
}

void HttpStream::Drain() {
  for (int i = 0; i < kMaxDrains; ++i) {
    if (recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) <= 0) return;
  }
}

bool HttpStream::is_readable() const {
  return begin_ < end_ || WaitFor(fd_, POLLIN, read_deadline_);
}

bool HttpStream::is_writable() const {
  return WaitFor(fd_, POLLOUT, write_deadline_);
}

void HttpStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void HttpStream::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace agg
