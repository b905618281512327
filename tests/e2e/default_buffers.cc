// For LD_PRELOAD: a kernel with the default net.core.wmem_max. That setting
// belongs to the whole machine, network namespaces included, so a test cannot
// set it. $AGG_CAPPED is a file that is made when somebody gets less than they
// asked for.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr int kDefaultBytes = 212992;

void NoteCapped() {
  const char* const path = std::getenv("AGG_CAPPED");
  if (path == nullptr) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

}  // namespace

extern "C" int setsockopt(int fd, int level, int name, const void* value,
                          socklen_t size) noexcept {
  using Call = int (*)(int, int, int, const void*, socklen_t);
  static const Call next =
      reinterpret_cast<Call>(dlsym(RTLD_NEXT, "setsockopt"));
  int bytes = 0;
  if (level == SOL_SOCKET && name == SO_SNDBUF && size == sizeof(bytes)) {
    std::memcpy(&bytes, value, sizeof(bytes));
    if (bytes > kDefaultBytes) {
      NoteCapped();
      return next(fd, level, name, &kDefaultBytes, sizeof(kDefaultBytes));
    }
  }
  return next(fd, level, name, value, size);
}
