// One thread polls the sockets that listen; what it accepts is gRPC's.
#include "server/rpc/connection_listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/rpc/listen_check.h"

namespace agg {
namespace {

// All workers of a job connect at the same time when it begins.
constexpr int kBacklog = 1024;
// Before it accepts again when the system had no descriptor or memory.
constexpr int kPauseMs = 100;
// Between two looks whether local connections are stuck.
constexpr int kLookMs = 1000;

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// Of a Unix socket; 0: it is not to be seen from this process.
int32_t ProcessAtTheOtherEnd(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const int failed = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return failed == 0 ? peer.pid : 0;
}

// A socket that listens there; *error is its errno if it does not.
FileDescriptor Listen(const sockaddr* address, socklen_t size, bool both,
                      int* error) {
  FileDescriptor fd(socket(address->sa_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.valid()) {
    // Connections of a former process that are still closing do not count.
    SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->sa_family == AF_INET6) {
      SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
    }
    if (bind(fd.get(), address, size) == 0 && listen(fd.get(), kBacklog) == 0) {
      return fd;
    }
  }
  *error = errno;
  return FileDescriptor();
}

void SetPort(int port, sockaddr* address) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

// Of both kinds; none: the system has no IPv6.
FileDescriptor ListenOnAll(int port, int* error) {
  sockaddr_in6 all = {};
  all.sin6_family = AF_INET6;
  all.sin6_port = htons(static_cast<uint16_t>(port));
  return Listen(reinterpret_cast<sockaddr*>(&all), sizeof(all), true, error);
}

// Every address of the name that can be listened on, on one port.
std::vector<FileDescriptor> ListenOnEach(const addrinfo* addresses, int port,
                                         int* error) {
  std::vector<FileDescriptor> sockets;
  for (const addrinfo* one = addresses; one != nullptr; one = one->ai_next) {
    if (!sockets.empty() && port == 0) port = PortOf(sockets.front());
    SetPort(port, one->ai_addr);
    int failed = 0;
    FileDescriptor fd =
        Listen(one->ai_addr, one->ai_addrlen, /*both=*/false, &failed);
    if (fd.valid()) {
      sockets.push_back(std::move(fd));
    } else if (*error == 0) {
      *error = failed;
    }
  }
  return sockets;
}

// "10.0.0.1"; all Unix sockets are one host.
std::string HostOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "unix";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<FileDescriptor>> ListenOn(
    absl::string_view address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  const std::string port(address.substr(colon + 1));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      found, &freeaddrinfo);
  int number = 0;
  if (!absl::SimpleAtoi(port, &number)) number = 0;
  int error = 0;
  std::vector<FileDescriptor> sockets;
  if (host == "0.0.0.0" || host == "::") {
    FileDescriptor all = ListenOnAll(number, &error);
    if (all.valid()) sockets.push_back(std::move(all));
    if (error == EADDRINUSE) return ListenError(address, error);
  }
  if (sockets.empty()) sockets = ListenOnEach(found, number, &error);
  if (sockets.empty()) return ListenError(address, error);
  return sockets;
}

int PortOf(const FileDescriptor& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // The port is at the same place in both kinds of address.
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

ConnectionListener::ConnectionListener(Parts parts)
    : parts_(std::move(parts)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

ConnectionListener::~ConnectionListener() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ConnectionListener::Loop() {
  std::vector<pollfd> waited = {{stop_.get(), POLLIN, 0}};
  for (const FileDescriptor& port : parts_.ports) {
    waited.push_back({port.get(), POLLIN, 0});
  }
  const size_t first_local = waited.size();
  for (const FileDescriptor& socket : parts_.local_sockets) {
    waited.push_back({socket.get(), POLLIN, 0});
  }
  const int look_ms = parts_.local_sockets.empty() ? -1 : kLookMs;
  absl::Time looked = Clock::Real()->Now();
  while (true) {
    poll(waited.data(), waited.size(), look_ms);
    if (waited[0].revents != 0) return;
    const absl::Time now = Clock::Real()->Now();
    if (look_ms > 0 && now - looked >= absl::Milliseconds(look_ms)) {
      looked = now;
      EndStuck();
    }
    bool failed = false;
    for (size_t i = 1; i < waited.size(); ++i) {
      if (waited[i].revents == 0) continue;
      if (!AcceptOne(waited[i].fd, i >= first_local)) failed = true;
    }
    if (failed) poll(waited.data(), 1, kPauseMs);
  }
}

void ConnectionListener::EndStuck() {
  for (const int32_t process : parts_.open->EndStuck(parts_.user_timeout)) {
    LogWarning("process ", process, " of this host has taken nothing of what ",
               "waits for it for ", absl::FormatDuration(parts_.user_timeout),
               ": its connection is ended");
  }
}

bool ConnectionListener::AcceptOne(int listener, bool local) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
        errno == ENOMEM) {
      if (!std::exchange(failing_, true)) {
        LogWarning("no connection can be accepted: ", std::strerror(errno));
      }
      return false;
    }
    return true;  // one that is gone already
  }
  failing_ = false;
  NewConnection connection;
  connection.fd = fd;
  connection.host = HostOf(peer);
  connection.peer = PeerOf(peer);
  connection.local = local;
  if (local) connection.process = ProcessAtTheOtherEnd(fd);
  if (!parts_.open->Add(connection)) {
    close(fd);
    if (parts_.on_refused != nullptr) parts_.on_refused(connection.host);
    return true;
  }
  if (!local) {
    SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
              static_cast<int>(absl::ToInt64Milliseconds(parts_.user_timeout)));
  }
  parts_.take(listener, fd, local);
  return true;
}

}  // namespace agg
