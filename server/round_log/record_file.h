// The file of a round log, and how it is read (proto/round_log.proto has the
// grammar).
#ifndef AGG_SERVER_ROUND_LOG_RECORD_FILE_H_
#define AGG_SERVER_ROUND_LOG_RECORD_FILE_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/round_log.pb.h"

namespace agg {

inline constexpr size_t kMaxRecordBytes = size_t{1} << 24;

// Reads the records of a file in one pass. Not thread-safe.
class RecordReader {
 public:
  // NOT_FOUND if the file cannot be opened.
  static absl::StatusOr<RecordReader> Open(const std::string& path);

  // Whether there was another record. False at the end, also where the last
  // record is cut short. DATA_LOSS with the offset: these bytes are not a
  // record, or the first one lacks `run`. The file is not a round log then, or
  // it is damaged.
  absl::StatusOr<bool> Next(v1::RoundLogRecord* record);

  // Where the last complete record ends.
  int64_t end_offset() const { return end_offset_; }
  // Returns, after Next was false, the bytes of a record that was cut short.
  int64_t truncated_bytes() const { return truncated_bytes_; }

 private:
  explicit RecordReader(std::ifstream file) : file_(std::move(file)) {}

  std::ifstream file_;
  std::string bytes_;
  bool first_ = true;
  int64_t end_offset_ = 0;
  int64_t truncated_bytes_ = 0;
};

// The file that a round log appends to: it holds complete records only, as far
// as the system lets it: what was written of a record before an error is cut
// off again. Not thread-safe; one process at a time may have a path.
class RecordFile {
 public:
  // Creates the file, or goes on at its end. Another process may still write to
  // it, as a shard 0 does for which this one is the standby: so what is there
  // is looked at again, and an unfinished record cut off, by the first Append.
  // A symbolic link stands for the file to which it leads.
  // FAILED_PRECONDITION: it is not a round log, or damaged, or not a regular
  // file; UNAVAILABLE: it cannot be opened; PERMISSION_DENIED: this process may
  // not write it.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Open(
      const std::string& path);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Bytes of its complete records, as far as this object knows.
  int64_t num_bytes() const { return num_bytes_; }

  // Goes on behind what others have written or rotated since; whether they
  // have. Append does so, too.
  absl::StatusOr<bool> CatchUp();

  // Appends length and `message` with one write(): the kernel has it on
  // return, a crash of the process loses nothing. UNAVAILABLE with the
  // system's reason; nothing was appended then, and it may be tried again.
  // INVALID_ARGUMENT: a record cannot have that many bytes.
  absl::Status Append(absl::string_view message);

  // Renames the file to PATH.1, over an older one, and begins a new one.
  // UNAVAILABLE: the file is as it was. So it is if PATH.1 is not a regular
  // file, which a rename would replace.
  absl::Status Rotate();

 private:
  RecordFile(std::string path, int fd, int64_t num_bytes)
      : path_(std::move(path)), fd_(fd), num_bytes_(num_bytes) {}

  const std::string path_;
  int fd_;
  int64_t num_bytes_;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_RECORD_FILE_H_
