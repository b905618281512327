// Plain system calls, one write() for each line: a process that is killed
// leaves complete lines behind.
#include "worker_client/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/file_size_limit.h"

namespace agg {
namespace {

const char* JsonBool(bool value) { return value ? "true" : "false"; }

std::string Reason() { return std::strerror(errno); }

}  // namespace

std::string ToLine(const AuditedPush& push) {
  return absl::StrCat(
      "{\"round\":", push.row.round, ",\"rank\":", push.rank,
      ",\"session\":", push.row.session, ",\"attempt\":", push.row.attempt,
      ",\"row_crc32c\":[", absl::StrJoin(push.row_crc32c, ","),
      "],\"included\":", JsonBool(push.included), ",\"version\":", push.version,
      ",\"made\":", push.made, ",\"rewound\":", JsonBool(push.rewound), "}");
}

AuditLog::AuditLog(const std::string& path,
                   std::function<void(const std::string&)> on_error)
    : path_(path), on_error_(std::move(on_error)) {
  if (path_.empty()) return;
  const std::string error = Open();
  if (!error.empty()) on_error_(absl::StrCat(path_, ": ", error));
}

AuditLog::~AuditLog() {
  MutexLock lock(&mutex_);
  if (fd_ >= 0) close(fd_);
}

std::string AuditLog::Open() {
  MutexLock lock(&mutex_);
  // O_NONBLOCK: a FIFO that nobody reads must not stop the worker.
  const int fd =
      open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
           0644);
  if (fd < 0) return Reason();
  struct stat info;
  std::string error;
  if (fstat(fd, &info) != 0) {
    error = Reason();
  } else if (!S_ISREG(info.st_mode)) {
    error = "not a regular file";
  }
  if (!error.empty()) {
    close(fd);
    return error;
  }
  fd_ = fd;
  // A disk that was full may have left a piece of a line.
  char last = '\n';
  if (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) == 1 &&
      last != '\n') {
    return Write("\n");
  }
  return "";
}

std::string AuditLog::Write(absl::string_view line) {
  struct stat info = {};
  fstat(fd_, &info);
  const absl::Status size =
      CheckFileSize(info.st_size + static_cast<int64_t>(line.size()));
  if (!size.ok()) {
    close(fd_);
    fd_ = -1;
    return std::string(size.message());
  }
  ssize_t written;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return "";
  const std::string error =
      written < 0 ? Reason() : "no room for a complete line";
  close(fd_);
  fd_ = -1;
  return error;
}

void AuditLog::Add(const AuditedPush& push) {
  std::string error;
  {
    MutexLock lock(&mutex_);
    if (fd_ < 0 || (push.row == last_ && !push.rewound)) return;
    last_ = push.row;
    error = Write(absl::StrCat(ToLine(push), "\n"));
  }
  if (!error.empty()) on_error_(absl::StrCat(path_, ": ", error));
}

}  // namespace agg
