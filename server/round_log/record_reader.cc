// Reads delimited protobuf messages by hand: protobuf's own reader does not
// tell a record that was cut short from one that is damaged.
#include "server/round_log/record_reader.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {
namespace {

constexpr int kMaxLengthBytes = 4;

enum class Length { kGood, kEnd, kMalformed };

// A varint; *num_read counts its bytes, those of an unfinished one, too.
Length ReadLength(std::ifstream* file, size_t* length, int64_t* num_read) {
  *length = 0;
  *num_read = 0;
  for (int i = 0; i < kMaxLengthBytes; ++i) {
    const int byte = file->get();
    if (byte == std::ifstream::traits_type::eof()) return Length::kEnd;
    ++*num_read;
    *length |= static_cast<size_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) {
      return *length > 0 && *length <= kMaxRecordBytes ? Length::kGood
                                                       : Length::kMalformed;
    }
  }
  return Length::kMalformed;
}

// Whether a file's first message may begin with these bytes. Field 1, `run`,
// stands first there, and the job's name first in it: a text file that was
// given by mistake must not look like a record that was cut short, and go.
bool MayBeFirst(absl::string_view bytes) {
  constexpr char kField1 = 0x0a;  // length-delimited
  if (!bytes.empty() && bytes[0] != kField1) return false;
  size_t i = 1;
  while (i < bytes.size() && (bytes[i] & 0x80) != 0) ++i;  // run's length
  return i + 1 >= bytes.size() || bytes[i + 1] == kField1;
}

}  // namespace

absl::StatusOr<RecordReader> RecordReader::Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // A folder opens, and then fails to be read.
  if (!file || (file.peek(), file.bad())) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  file.clear();
  return RecordReader(std::move(file));
}

absl::StatusOr<bool> RecordReader::Next(v1::RoundLogRecord* record) {
  const auto malformed = [this](const char* what) {
    return absl::DataLossError(absl::StrCat(
        "no round log, or damaged: at byte ", end_offset_, ": ", what));
  };
  size_t length = 0;
  int64_t num_read = 0;
  switch (ReadLength(&file_, &length, &num_read)) {
    case Length::kGood:
      break;
    case Length::kEnd:
      truncated_bytes_ = num_read;
      return false;
    case Length::kMalformed:
      return malformed("a record's length is not 1 to 2^24");
  }
  bytes_.resize(length);
  file_.read(&bytes_[0], static_cast<std::streamsize>(length));
  if (first_ && !MayBeFirst(absl::string_view(
                    bytes_.data(), static_cast<size_t>(file_.gcount())))) {
    return malformed("no record of a round log begins so");
  }
  if (file_.gcount() < static_cast<std::streamsize>(length)) {
    truncated_bytes_ = num_read + file_.gcount();
    return false;
  }
  if (!record->ParseFromString(bytes_)) return malformed("not a record");
  if (first_ && !record->has_run()) {
    return malformed("the first record does not describe a run");
  }
  first_ = false;
  end_offset_ += num_read + static_cast<int64_t>(length);
  return true;
}

}  // namespace agg
