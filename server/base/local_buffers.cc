// A descriptor may be closed, and its number be another file's, while this
// looks at it: at worst that one has a larger buffer, too.
#include "server/base/local_buffers.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace agg {
namespace {

// getsockname or getpeername.
using NameCall = int (*)(int, sockaddr*, socklen_t*);

bool HasOurName(int fd, NameCall call) {
  sockaddr_un address = {};
  socklen_t size = sizeof(address);
  if (call(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX ||
      size <= offsetof(sockaddr_un, sun_path)) {
    return false;
  }
  const absl::string_view name(address.sun_path,
                               size - offsetof(sockaddr_un, sun_path));
  // A first byte of 0 makes it abstract.
  return name[0] == 0 && absl::StartsWith(name.substr(1), "agg-");
}

void Widen(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) != 0) return;
  if (bytes >= kLocalBufferBytes) return;
  if (!HasOurName(fd, &getsockname) && !HasOurName(fd, &getpeername)) return;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes,
             sizeof(kLocalBufferBytes));
}

}  // namespace

void WidenLocalBuffers() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"),
                                                   &closedir);
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder.get())) {
    int fd;
    if (absl::SimpleAtoi(entry->d_name, &fd)) Widen(fd);
  }
}

}  // namespace agg
