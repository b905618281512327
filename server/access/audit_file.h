// The file of audit lines.
#ifndef AGG_SERVER_ACCESS_AUDIT_FILE_H_
#define AGG_SERVER_ACCESS_AUDIT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/identities.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"

namespace agg {

// Lines are appended by a thread of its own, so that a slow disk holds nobody
// up; a line that would make the file longer than `max_bytes` goes into a new
// one, and the old one becomes PATH.1. A line that cannot be written is left
// out as a whole, and the log says why, once until a line is written again. The
// file is for its owner alone (0600). Thread-safe.
class AuditFile {
 public:
  static constexpr size_t kMaxWaiting = 1024;

  // At most `max_waiting` lines wait for the disk; further ones are lost, and
  // the log says how many. Errors name the path and the reason.
  static absl::StatusOr<std::unique_ptr<AuditFile>> Open(
      const AuditFileOptions& options, size_t max_waiting = kMaxWaiting);
  // Writes what waits.
  ~AuditFile();
  AuditFile(const AuditFile&) = delete;
  AuditFile& operator=(const AuditFile&) = delete;

  // Queues the line, which has no newline. Never waits for the disk.
  void Write(std::string line);

 private:
  AuditFile(const AuditFileOptions& options, size_t max_waiting,
            FileDescriptor file);

  void Work();
  void AppendOrLog(const std::string& line);
  absl::Status Append(const std::string& line);
  absl::Status BeginNew();

  const AuditFileOptions options_;
  const size_t max_waiting_;
  // Used by the thread alone.
  FileDescriptor file_;
  std::string logged_;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;  // since the log said so
  std::thread thread_;                             // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_AUDIT_FILE_H_
