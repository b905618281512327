// For LD_PRELOAD: a folder that does not answer, as of a network file system
// whose server is gone. While the file $AGG_HANG_WHILE is there, opendir and
// open of paths below $AGG_HANG_BELOW do not return.
// Else the headers define open themselves.
#undef _FORTIFY_SOURCE

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

void WaitFor(const char* path) {
  const char* const below = std::getenv("AGG_HANG_BELOW");
  const char* const file = std::getenv("AGG_HANG_WHILE");
  if (below == nullptr || file == nullptr ||
      std::strncmp(path, below, std::strlen(below)) != 0) {
    return;
  }
  while (access(file, F_OK) == 0) usleep(10000);
}

using OpenCall = int (*)(const char*, int, ...);

int OpenLater(const char* name, const char* path, int flags, mode_t mode) {
  WaitFor(path);
  return reinterpret_cast<OpenCall>(dlsym(RTLD_NEXT, name))(path, flags, mode);
}

}  // namespace

extern "C" {

DIR* opendir(const char* path) {
  WaitFor(path);
  using Call = DIR* (*)(const char*);
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, "opendir"))(path);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return OpenLater("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return OpenLater("open64", path, flags, mode);
}

}  // extern "C"
