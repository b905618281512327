// The limit of this process for a file's length (RLIMIT_FSIZE, `ulimit -f`),
// which files in memory have, too.
#ifndef AGG_SERVER_BASE_FILE_SIZE_LIMIT_H_
#define AGG_SERVER_BASE_FILE_SIZE_LIMIT_H_

#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {

// OK if a file may be so long. To be asked before a file grows: the kernel
// sends SIGXFSZ with its own EFBIG, whose default ends the process, and a
// library must not change what the process does with signals.
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

#endif  // AGG_SERVER_BASE_FILE_SIZE_LIMIT_H_
