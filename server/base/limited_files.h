// A file system whose calls end. A network file system that is gone keeps a
// thread in open, readdir, read or close for as long as it likes, and nothing
// can get it back: so each call is made on a thread that can be left behind.
#ifndef AGG_SERVER_BASE_LIMITED_FILES_H_
#define AGG_SERVER_BASE_LIMITED_FILES_H_

#include <memory>

#include "absl/time/time.h"
#include "server/base/file_system.h"

namespace agg {

struct FileLimits {
  // Limits of the calls that recoveries wait for. `look` is for List and Open,
  // `read` for a Read, of at most 1 MiB more than was asked for.
  absl::Duration look = absl::Seconds(10);
  absl::Duration read = absl::Seconds(60);
  // Limit of each call that writes, beside the rounds: a slow disk may take
  // minutes to sync.
  absl::Duration write = absl::Minutes(10);
};

// `files`, each of whose calls ends with DEADLINE_EXCEEDED naming operation and
// path when its limit is over. As long as such a call has not returned others
// of its kind (look, read or write) fail at once, so that no more than one
// thread of each kind is stuck. What it still does then is not seen by anybody.
// Small Reads and Appends are put together. Thread-safe; the files that it has
// opened do not outlive it.
std::unique_ptr<FileSystem> LimitFiles(std::unique_ptr<FileSystem> files,
                                       const FileLimits& limits = {});

}  // namespace agg

#endif  // AGG_SERVER_BASE_LIMITED_FILES_H_
