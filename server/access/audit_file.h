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
// one, and the old one becomes PATH.1. What cannot be written is left out as a
// whole and counted, and the log says so once for each reason. The file is for its owner alone (0600).
// Thread-safe.
class AuditFile {
 public:
  // Lines that wait at most; further ones are lost, and counted.
  static constexpr size_t kMaxWaiting = 1024;

  // Errors name the path and the reason.
  static absl::StatusOr<std::unique_ptr<AuditFile>> Open(
      const AuditFileOptions& options);
  // Writes what waits.
  ~AuditFile();
  AuditFile(const AuditFile&) = delete;
  AuditFile& operator=(const AuditFile&) = delete;

  // Without a newline. Never blocks for the disk.
  void Write(std::string line);
  uint64_t num_lost() const;

 private:
  AuditFile(const AuditFileOptions& options, FileDescriptor file);

  void Work();
  absl::Status Append(const std::string& line);
  absl::Status BeginNew();

  const AuditFileOptions options_;
  // Used by the thread alone.
  FileDescriptor file_;
  std::string logged_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_AUDIT_FILE_H_
