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

absl::Status CheckLocalListen(absl::string_view name) {
  const int fd = OpenSocket();
  int error = WithAddress(fd, name, &bind);
  if (error == 0 && listen(fd, 1) != 0) error = errno;
  if (fd >= 0) close(fd);
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                             LocalSocketTarget(name), ": ",
                                             std::strerror(error)));
}

bool CanConnectLocally(absl::string_view name) {
  if (!IsLocalSocketName(name)) return false;
  const int fd = OpenSocket();
  const int error = WithAddress(fd, name, &connect);
  // Anybody may take a name that is free here: a shard on another host has one
  // that is. SO_PEERCRED says who called listen.
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool trusted =
      error == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
      (peer.uid == geteuid() || peer.uid == 0);
  if (fd >= 0) close(fd);
  return trusted;
}

}  // namespace agg
