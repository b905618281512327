// Sockets do not block; poll does, until the deadline.
#include "server/tls/tcp_connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/address.h"

namespace agg {
namespace {

FileDescriptor ConnectTo(const addrinfo& one, absl::Time deadline) {
  FileDescriptor made(
      socket(one.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return made;
  if (connect(made.get(), one.ai_addr, one.ai_addrlen) == 0) return made;
  int error = errno;
  if (error == EINPROGRESS && AwaitSocket(made.get(), true, deadline)) {
    socklen_t size = sizeof(error);
    getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  return error == 0 ? std::move(made) : FileDescriptor();
}

}  // namespace

bool AwaitSocket(int socket, bool write, absl::Time deadline) {
  pollfd waited = {socket, static_cast<short>(write ? POLLOUT : POLLIN), 0};
  while (true) {
    const absl::Duration left =
        std::max(deadline - absl::Now(), absl::ZeroDuration());
    const int ready =
        poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

FileDescriptor ConnectTcp(const std::string& address, absl::Time deadline) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return FileDescriptor();
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(parsed->host.c_str(), absl::StrCat(parsed->port).c_str(),
                  &hints, &found) != 0) {
    return FileDescriptor();
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    FileDescriptor made = ConnectTo(*one, deadline);
    if (made.valid()) return made;
  }
  return FileDescriptor();
}

}  // namespace agg
