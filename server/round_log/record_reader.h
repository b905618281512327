// Reads the records of a round log (proto/round_log.proto has the grammar).
#ifndef AGG_SERVER_ROUND_LOG_RECORD_READER_H_
#define AGG_SERVER_ROUND_LOG_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "proto/round_log.pb.h"

namespace agg {

inline constexpr size_t kMaxRecordBytes = size_t{1} << 24;

// One pass over a file, a record at a time. Not thread-safe.
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
  // After Next was false: bytes of a record that was cut short.
  int64_t truncated_bytes() const { return truncated_bytes_; }

 private:
  explicit RecordReader(std::ifstream file) : file_(std::move(file)) {}

  std::ifstream file_;
  std::string bytes_;
  bool first_ = true;
  int64_t end_offset_ = 0;
  int64_t truncated_bytes_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_LOG_RECORD_READER_H_
