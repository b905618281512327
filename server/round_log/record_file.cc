// Plain system calls: a stream would buffer, and could write half a record.
#include "server/round_log/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/atomic_file.h"
#include "server/base/file_descriptor.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

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

namespace {

constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
constexpr mode_t kMode = 0644;

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::Status(
      CodeOfRefusedFile(errno),
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// Bytes of the complete records in an existing file.
absl::StatusOr<int64_t> CompleteBytes(const std::string& path) {
  absl::StatusOr<RecordReader> reader = RecordReader::Open(path);
  if (!reader.ok()) return absl::UnavailableError(reader.status().message());
  v1::RoundLogRecord record;
  for (;;) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is ", more.status().message(),
                       "; move it away to begin a new one"));
    }
    if (*more) continue;
    return reader->end_offset();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(
    const std::string& given_path) {
  // Behind a link: else Rotate would rename the link.
  const absl::StatusOr<std::string> path_or = OutputPath(given_path);
  if (!path_or.ok()) {
    return absl::FailedPreconditionError(
        OutputError("round_log.path", given_path, path_or.status()).message());
  }
  const std::string& path = *path_or;
  const int fd = open(path.c_str(), kFlags, kMode);
  if (fd < 0) return SystemError("open", path);
  auto file = absl::WrapUnique(new RecordFile(path, fd, 0));
  AGG_ASSIGN_OR_RETURN(file->num_bytes_, CompleteBytes(path));
  return file;
}

RecordFile::~RecordFile() { close(fd_); }

absl::StatusOr<bool> RecordFile::CatchUp() {
  struct stat named = {};
  struct stat own = {};
  if (fstat(fd_, &own) != 0) return SystemError("look at", path_);
  if (stat(path_.c_str(), &named) == 0 && S_ISREG(named.st_mode) &&
      (named.st_ino != own.st_ino || named.st_dev != own.st_dev)) {
    const int fd = open(path_.c_str(), kFlags, kMode);
    if (fd < 0) return SystemError("open", path_);
    close(fd_);
    fd_ = fd;
    own = named;
    num_bytes_ = -1;
  }
  if (own.st_size == num_bytes_) return false;
  AGG_ASSIGN_OR_RETURN(const int64_t complete, CompleteBytes(path_));
  num_bytes_ = complete;
  if (own.st_size <= num_bytes_) return true;
  LogWarning("round log ", path_, ": cutting off an unfinished record of ",
             own.st_size - num_bytes_, " bytes");
  if (ftruncate(fd_, num_bytes_) != 0) return SystemError("truncate", path_);
  return true;
}

absl::Status RecordFile::Append(absl::string_view message) {
  AGG_RETURN_IF_ERROR(CatchUp().status());
  if (message.empty() || message.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of ", message.size(), " bytes; allowed: 1 to ",
                     kMaxRecordBytes));
  }
  std::string record;
  for (size_t length = message.size(); true; length >>= 7) {
    const bool last = length < 0x80;
    record.push_back(static_cast<char>((length & 0x7f) | (last ? 0 : 0x80)));
    if (last) break;
  }
  record.append(message.data(), message.size());
  const absl::Status size =
      CheckFileSize(num_bytes_ + static_cast<int64_t>(record.size()));
  if (!size.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot write to ", path_, ": ", size.message()));
  }
  errno = ENOSPC;  // what a short write means
  const ssize_t num_written = write(fd_, record.data(), record.size());
  if (num_written == static_cast<ssize_t>(record.size())) {
    num_bytes_ += num_written;
    return absl::OkStatus();
  }
  const absl::Status status = SystemError("write to", path_);
  // What cannot be cut off now, CatchUp cuts off.
  if (num_written > 0) (void)!ftruncate(fd_, num_bytes_);
  return status;
}

absl::Status RecordFile::Rotate() {
  const std::string old = path_ + ".1";
  const absl::StatusOr<std::string> replaceable = OutputPath(old);
  if (!replaceable.ok()) {
    return absl::UnavailableError(
        OutputError("the old round log", old, replaceable.status()).message());
  }
  if (std::rename(path_.c_str(), old.c_str()) != 0) {
    return SystemError("rename", path_);
  }
  const int fd = open(path_.c_str(), kFlags | O_TRUNC, kMode);
  if (fd < 0) {
    const absl::Status status = SystemError("open", path_);
    (void)std::rename(old.c_str(), path_.c_str());
    return status;
  }
  close(fd_);
  fd_ = fd;
  num_bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace agg
