// A descriptor may be closed, and its number be another file's, while this
// looks at it: at worst that one has a larger buffer, too.
#include "server/base/local_buffers.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
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

// 0: no socket.
int SendBuffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) != 0) return 0;
  return bytes;
}

// The most that a socket has had after it was given kLocalBufferBytes: less,
// where the system allows less, and who has that needs no more calls. 0: none
// was given any.
std::atomic<int> reached{0};

void NoteReached(int bytes) {
  int before = reached;
  while (before < bytes && !reached.compare_exchange_weak(before, bytes)) {
  }
}

bool IsWide(int bytes) {
  const int most = reached;
  return bytes >= kLocalBufferBytes || (most > 0 && bytes >= most);
}

void Widen(int fd) {
  const int before = SendBuffer(fd);
  if (before == 0 || IsWide(before)) return;
  if (!HasOurName(fd, &getsockname) && !HasOurName(fd, &getpeername)) return;
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes,
                 sizeof(kLocalBufferBytes)) != 0) {
    return;
  }
  // Another socket that has the number by now has not grown.
  const int after = SendBuffer(fd);
  if (after > before) NoteReached(after);
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
