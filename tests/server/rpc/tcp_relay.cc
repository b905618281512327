// One thread accepts, and two per connection pass bytes on.
#include "tests/server/rpc/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

int PortOf(const std::string& address) {
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
    std::abort();
  }
  return port;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

TcpRelay::TcpRelay(const std::string& target) : target_port_(PortOf(target)) {
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || bind(listener_, raw, size) != 0 ||
      listen(listener_, 16) != 0 || getsockname(listener_, raw, &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

TcpRelay::~TcpRelay() {
  Close();
  acceptor_.join();
  close(listener_);
  std::vector<std::thread> passers;
  {
    MutexLock lock(&mutex_);
    passers.swap(passers_);
  }
  for (std::thread& thread : passers) thread.join();
  MutexLock lock(&mutex_);
  for (const int socket : sockets_) close(socket);
}

std::string TcpRelay::address() const {
  return absl::StrCat("127.0.0.1:", port_);
}

void TcpRelay::Redirect(const std::string& target) {
  MutexLock lock(&mutex_);
  target_port_ = PortOf(target);
}

void TcpRelay::Mute() {
  MutexLock lock(&mutex_);
  mute_ = true;
  muted_any_ = false;
}

void TcpRelay::AwaitMuted() {
  MutexLock lock(&mutex_);
  while (!muted_any_) changed_.Wait(&mutex_);
}

void TcpRelay::CutLocked() {
  mute_ = false;
  for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
}

void TcpRelay::Cut() {
  MutexLock lock(&mutex_);
  CutLocked();
}

void TcpRelay::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  shutdown(listener_, SHUT_RDWR);
  CutLocked();
}

void TcpRelay::Accept() {
  for (;;) {
    const int near = accept(listener_, nullptr, nullptr);
    if (near < 0) return;  // Close was called
    const int far = socket(AF_INET, SOCK_STREAM, 0);
    MutexLock lock(&mutex_);
    sockets_.push_back(near);
    sockets_.push_back(far);
    const sockaddr_in address = Loopback(target_port_);
    if (closed_ || connect(far, reinterpret_cast<const sockaddr*>(&address),
                           sizeof(address)) != 0) {
      shutdown(near, SHUT_RDWR);
      continue;
    }
    passers_.emplace_back([this, near, far] { Pass(near, far, false); });
    passers_.emplace_back([this, near, far] { Pass(far, near, true); });
  }
}

void TcpRelay::Pass(int from, int to, bool from_target) {
  std::vector<char> bytes(1 << 16);
  for (;;) {
    const ssize_t size = recv(from, bytes.data(), bytes.size(), 0);
    if (size <= 0) break;
    {
      MutexLock lock(&mutex_);
      if (from_target && mute_) {
        muted_any_ = true;
        changed_.NotifyAll();
        continue;
      }
    }
    for (ssize_t sent = 0; sent < size;) {
      const ssize_t n = send(to, bytes.data() + sent,
                             static_cast<size_t>(size - sent), MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += n;
    }
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace agg
