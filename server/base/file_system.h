// The few operations on files that a checkpoint needs, behind an interface: a
// test's disk can then lose what was not synced, and fail where it likes
// (tests/server/base/sim_disk.h).
#ifndef AGG_SERVER_BASE_FILE_SYSTEM_H_
#define AGG_SERVER_BASE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agg {

// Returns the error of an operation on `path`, which names both, as all errors
// of this file. Its code is that of absl::ErrnoToStatus (NOT_FOUND,
// RESOURCE_EXHAUSTED for a full disk, ..), but UNKNOWN for the codes by which
// processes say that a peer is lost or an epoch is over (ESTALE is ABORTED
// there, ENOLCK is UNAVAILABLE): who hears of them tries again, and would do so
// for ever.
absl::Status FileErrorOf(int error, absl::string_view operation,
                         const std::string& path);

// A file being written from its beginning. After an error of one method only
// the destructor may follow: above all, a Sync that failed says nothing of what
// a second one would report, since the system may have dropped the data.
// Thread-compatible.
class WritableFile {
 public:
  // Closes it.
  virtual ~WritableFile() = default;
  // All of `bytes`. After an error a part of them may be there.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // What was appended outlives a crash of the machine.
  virtual absl::Status Sync() = 0;
  // REQUIRES: nothing but the destructor follows.
  virtual absl::Status Close() = 0;
};

// An open file, as long as it was when it was opened. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t num_bytes() const = 0;
  // Fills `bytes` from `offset` on. DATA_LOSS: the file ends before.
  virtual absl::Status Read(int64_t offset, absl::Span<char> bytes) = 0;
};

// Paths are absolute or relative to the process's folder. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // An empty file, in the place of one that is there. Does not follow a
  // symbolic link.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) = 0;
  // A regular file; anything else is FAILED_PRECONDITION.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) = 0;
  // OK if the folder is there already. Its parent has to be.
  virtual absl::Status CreateFolder(const std::string& path) = 0;
  // Replaces a file that is at `to`.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // The names in the folder outlive a crash of the machine. OK on a file system
  // that has no such operation.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Names without the folder, in ascending order; not "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) = 0;
  // A file, or a folder without anything in it.
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The system's.
std::unique_ptr<FileSystem> MakeSystemFiles();

}  // namespace agg

#endif  // AGG_SERVER_BASE_FILE_SYSTEM_H_
