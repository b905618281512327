// A worker's own log of what it pushed and what it was told of it: the other
// half of `agg_report --audit` (server/tools/README.md).
#ifndef AGG_WORKER_CLIENT_AUDIT_LOG_H_
#define AGG_WORKER_CLIENT_AUDIT_LOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"
#include "worker_client/row_custody.h"

namespace agg {

// A row that was pushed, and its outcome as the worker knows it.
struct AuditedPush {
  int rank = 0;
  RowName row;
  // CommitRequest.row_crc32c of proto/agg.proto; empty: not known.
  std::vector<uint32_t> row_crc32c;
  bool included = false;
  uint64_t version = 0;  // of the outcome; 0: not known
  uint64_t made = 0;     // the epoch that made it; 0: not known
  // The round was given up before the worker heard of its end: `included` says
  // nothing then.
  bool rewound = false;
};

// One line of JSON, without a newline.
std::string ToLine(const AuditedPush& push);

// Appends lines to a regular file. What was written survives the end of the
// process (not of the machine: nothing is synced). The first error is said and
// ends the log, never the training. Thread-safe.
class AuditLog {
 public:
  // Goes on at the end of the file at `path`, on a line of its own; "": writes
  // nothing. `on_error` is called once at most, from here or from Add.
  AuditLog(const std::string& path,
           std::function<void(const std::string&)> on_error);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Twice of one row, since a round that was cancelled has gone on: once,
  // unless it says that the round was rewound.
  void Add(const AuditedPush& push);

 private:
  // "" or why it cannot be done.
  std::string Open();
  std::string Write(absl::string_view line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::function<void(const std::string&)> on_error_;
  Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;  // -1: nothing is written
  RowName last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_AUDIT_LOG_H_
