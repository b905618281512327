// Plain system calls: a stream would buffer, and could write half a record.
#include "server/round_log/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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
#include "server/round_log/record_reader.h"

namespace agg {
namespace {

constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
constexpr mode_t kMode = 0644;

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
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
  struct stat info = {};
  int64_t num_bytes = 0;
  if (stat(path.c_str(), &info) == 0) {
    AGG_ASSIGN_OR_RETURN(const int64_t complete, CompleteBytes(path));
    num_bytes = complete;
  }
  const int fd = open(path.c_str(), kFlags, kMode);
  if (fd < 0) return SystemError("open", path);
  return absl::WrapUnique(new RecordFile(path, fd, num_bytes));
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
