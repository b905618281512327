#include "server/access/audit_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/file_descriptor.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

absl::Status SystemError(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("\"", path, "\": ", std::strerror(errno)));
}

absl::StatusOr<FileDescriptor> OpenForLines(const std::string& path) {
  FileDescriptor file(
      open(path.c_str(),
           O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
           S_IRUSR | S_IWUSR));
  struct stat about;
  if (!file.valid() || fstat(file.get(), &about) != 0) return SystemError(path);
  if (!S_ISREG(about.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat("\"", path, "\": it is not a regular file"));
  }
  return file;
}

absl::Status WriteAll(int file, absl::string_view bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditFile>> AuditFile::Open(
    const AuditFileOptions& options, size_t max_waiting) {
  absl::StatusOr<FileDescriptor> file = OpenForLines(options.path);
  if (!file.ok()) {
    return absl::Status(
        file.status().code(),
        absl::StrCat("security.audit.path is ", file.status().message(),
                     "; allowed: a file that can be written"));
  }
  return absl::WrapUnique(
      new AuditFile(options, max_waiting, *std::move(file)));
}

AuditFile::AuditFile(const AuditFileOptions& options, size_t max_waiting,
                     FileDescriptor file)
    : options_(options),
      max_waiting_(max_waiting),
      file_(std::move(file)),
      thread_([this] { Work(); }) {}

AuditFile::~AuditFile() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void AuditFile::Write(std::string line) {
  {
    MutexLock lock(&mutex_);
    if (lines_.size() >= max_waiting_) {
      // The thread hears of it when it comes for those that wait.
      ++num_lost_;
      return;
    }
    lines_.push_back(std::move(line));
  }
  changed_.NotifyAll();
}

void AuditFile::Work() {
  for (;;) {
    // All at once, so that a flood has one line of the log for many lost ones.
    std::deque<std::string> lines;
    uint64_t num_lost = 0;
    {
      MutexLock lock(&mutex_);
      while (lines_.empty() && !stopped_) changed_.Wait(&mutex_);
      lines.swap(lines_);
      num_lost = std::exchange(num_lost_, 0);
    }
    if (num_lost > 0) {
      LogError("the audit file has lost ", num_lost,
               " lines: the disk is too slow");
    }
    if (lines.empty()) return;
    for (const std::string& line : lines) AppendOrLog(line);
  }
}

void AuditFile::AppendOrLog(const std::string& line) {
  const absl::Status status = Append(absl::StrCat(line, "\n"));
  const std::string error(status.message());
  if (std::exchange(logged_, error) != error && !status.ok()) {
    LogError("the audit file cannot be written: ", error);
  }
}

absl::Status AuditFile::Append(const std::string& line) {
  // Asked each time: others may cut the file short, or write to it.
  struct stat about;
  if (fstat(file_.get(), &about) != 0) return SystemError(options_.path);
  if (about.st_size > 0 &&
      about.st_size + static_cast<int64_t>(line.size()) > options_.max_bytes) {
    AGG_RETURN_IF_ERROR(BeginNew());
    about.st_size = 0;
  }
  const absl::Status size =
      CheckFileSize(about.st_size + static_cast<int64_t>(line.size()));
  if (!size.ok()) {
    return absl::UnavailableError(
        absl::StrCat("\"", options_.path, "\": ", size.message()));
  }
  const absl::Status status = WriteAll(file_.get(), line, options_.path);
  if (status.ok() || ftruncate(file_.get(), about.st_size) == 0) return status;
  // A part of a line stays, which the next one would make worse.
  return absl::Status(status.code(), absl::StrCat(status.message(), ", and ",
                                                  std::strerror(errno)));
}

absl::Status AuditFile::BeginNew() {
  const std::string before = absl::StrCat(options_.path, ".1");
  // It is not there if it was renamed, and no new one could be opened.
  if (rename(options_.path.c_str(), before.c_str()) != 0 && errno != ENOENT) {
    return SystemError(options_.path);
  }
  AGG_ASSIGN_OR_RETURN(file_, OpenForLines(options_.path));
  return absl::OkStatus();
}

}  // namespace agg
