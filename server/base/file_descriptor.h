// An open file descriptor with one owner, and how long its file may be.
#ifndef AGG_SERVER_BASE_FILE_DESCRIPTOR_H_
#define AGG_SERVER_BASE_FILE_DESCRIPTOR_H_

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {

// Closes what it has. Movable; thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes `fd`; below 0: none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  int fd_ = -1;
};

// The code for a file that the system refused with `error`: PERMISSION_DENIED
// where no time helps (its mode, its folder's, a folder that nothing may be
// written to), else UNAVAILABLE.
inline absl::StatusCode CodeOfRefusedFile(int error) {
  const bool for_good = error == EACCES || error == EPERM || error == EROFS;
  return for_good ? absl::StatusCode::kPermissionDenied
                  : absl::StatusCode::kUnavailable;
}

// OK if a file may be so long: a process has a limit (RLIMIT_FSIZE, `ulimit
// -f`), which holds for files in memory, too. To be asked before a file grows:
// the kernel sends SIGXFSZ with its own EFBIG, whose default ends the process,
// and a library must not change what the process does with signals.
// RESOURCE_EXHAUSTED with the limit and its name, and errno is EFBIG.
inline absl::Status CheckFileSize(int64_t num_bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      num_bytes <= static_cast<int64_t>(limit.rlim_cur)) {
    return absl::OkStatus();
  }
  errno = EFBIG;
  return absl::ResourceExhaustedError(absl::StrCat(
      std::strerror(EFBIG), ": it would have ", num_bytes,
      " bytes; allowed: ", limit.rlim_cur,
      ", this process's limit for a file (ulimit -f, RLIMIT_FSIZE)"));
}

}  // namespace agg

#endif  // AGG_SERVER_BASE_FILE_DESCRIPTOR_H_
