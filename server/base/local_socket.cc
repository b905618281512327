// Names are short, so that they fit the kernel's address with room to spare.
#include "server/base/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

constexpr size_t kMaxName = 64;
// All workers of a host connect at the same time when the job begins.
constexpr int kBacklog = 512;

// bind or connect.
using AddressCall = int (*)(int, const sockaddr*, socklen_t);

// 0, or the errno of socket or of `call`.
int WithAddress(int fd, absl::string_view name, AddressCall call) {
  if (fd < 0) return errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // A first byte of 0 makes the name abstract; its length ends it.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  return call(fd, reinterpret_cast<const sockaddr*>(&address),
              static_cast<socklen_t>(size)) == 0
             ? 0
             : errno;
}

int OpenSocket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

}  // namespace

std::string LocalSocketName(uint64_t life) {
  return absl::StrCat("agg-", absl::Hex(life, absl::kZeroPad16));
}

std::string RegionSocketName(uint64_t life) {
  return absl::StrCat("agg-regions-", absl::Hex(life, absl::kZeroPad16));
}

bool IsLocalSocketName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '-' || c == '.';
         });
}

std::string LocalSocketTarget(absl::string_view name) {
  return absl::StrCat("unix-abstract:", name);
}

absl::StatusOr<FileDescriptor> ListenLocally(absl::string_view name) {
  FileDescriptor socket(OpenSocket());
  int error = WithAddress(socket.get(), name, &bind);
  if (error == 0 && listen(socket.get(), kBacklog) != 0) error = errno;
  if (error == 0) return socket;
  return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                             LocalSocketTarget(name), ": ",
                                             std::strerror(error)));
}

absl::Status CheckLocalListen(absl::string_view name) {
  return ListenLocally(name).status();
}

bool IsTrustedPeer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

absl::StatusOr<FileDescriptor> ConnectLocally(absl::string_view name) {
  if (!IsLocalSocketName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is no name of a local socket"));
  }
  FileDescriptor socket(OpenSocket());
  const int error = WithAddress(socket.get(), name, &connect);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ",
                                               LocalSocketTarget(name), ": ",
                                               std::strerror(error)));
  }
  // Anybody may take a name that is free here: a shard on another host has one
  // that is. SO_PEERCRED says who called listen.
  if (!IsTrustedPeer(socket.get())) {
    return absl::UnavailableError(
        absl::StrCat(LocalSocketTarget(name), " is of another user's process"));
  }
  return socket;
}

bool CanConnectLocally(absl::string_view name) {
  return ConnectLocally(name).ok();
}

}  // namespace agg
