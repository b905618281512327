// A file of a checkpoint while it is written: it gets its name only when its
// bytes are on the disk, and the name is on the disk before anybody is told.
#ifndef AGG_SERVER_CHECKPOINT_DURABLE_FILE_H_
#define AGG_SERVER_CHECKPOINT_DURABLE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/crc32c.h"
#include "server/base/file_system.h"

namespace agg {

// Use: Create, Append as often as needed, Commit. The first error is final: it
// is what each later call returns, nothing is tried again, and the temporary
// file is removed. Thread-compatible.
class DurableFile {
 public:
  // Will be FOLDER/NAME; until then it is FOLDER/NAME.<life in hex>.tmp: two
  // processes never write into one file, even if both take themselves for the
  // same shard. `files` outlives it.
  static absl::StatusOr<std::unique_ptr<DurableFile>> Create(
      FileSystem* files, const std::string& folder, const std::string& name,
      uint64_t life);
  // Removes what was not committed.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Syncs the file, renames it, syncs the folder. After an error of the last
  // step the file may be there or not.
  absl::Status Commit();

  // Length and CRC32C of the bytes that were appended.
  int64_t num_bytes() const { return num_bytes_; }
  uint32_t crc32c() const { return FinishCrc32c(crc_); }

 private:
  DurableFile(FileSystem* files, std::string folder, std::string path,
              std::string temporary)
      : files_(files),
        folder_(std::move(folder)),
        path_(std::move(path)),
        temporary_(std::move(temporary)) {}

  absl::Status Fail(const absl::Status& error);
  absl::Status CloseAndRename();

  FileSystem* const files_;
  const std::string folder_;
  const std::string path_;
  const std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null once closed
  bool temporary_exists_ = false;
  absl::Status status_;  // the first error
  int64_t num_bytes_ = 0;
  uint32_t crc_ = kCrc32cInit;
};

// Reads at most `max_bytes` of a file; DATA_LOSS naming the path if it is
// longer, else the errors of FileSystem.
absl::StatusOr<std::string> ReadSmallFile(FileSystem* files,
                                          const std::string& path,
                                          int64_t max_bytes);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_DURABLE_FILE_H_
