// Sockets do not block; poll does, until the deadline.
#include "server/tls/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "server/base/address.h"
#include "server/tls/resolve_host.h"

namespace agg {
namespace {

FileDescriptor ConnectTo(const SocketAddress& one, absl::Time deadline) {
  FileDescriptor made(socket(one.bytes.ss_family,
                             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return made;
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&one.bytes),
              one.size) == 0) {
    return made;
  }
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
  for (const SocketAddress& one : ResolveHost(*parsed, deadline)) {
    FileDescriptor made = ConnectTo(one, deadline);
    if (made.valid()) return made;
  }
  return FileDescriptor();
}

}  // namespace agg
