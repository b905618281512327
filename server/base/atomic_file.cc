// Writes beside the path, syncs, renames, syncs the folder. A link is
// followed, and its target replaced.
#include "server/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/file_descriptor.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

// PERMISSION_DENIED where it stays so until somebody changes it.
absl::Status ErrnoError() {
  const bool denied = errno == EACCES || errno == EPERM || errno == EROFS;
  return absl::Status(
      denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnknown,
      std::strerror(errno));
}

// Makes a file, or the names in a folder, outlive a crash of the machine.
bool Sync(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return false;
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  errno = error;
  return synced;
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Where a path leads: the end of a chain of symbolic links, so that a rename
// replaces the file and not the link. A path that cannot be followed stays.
std::string Target(const std::string& path) {
  std::error_code error;
  const std::filesystem::path end = std::filesystem::canonical(path, error);
  return error ? path : end.string();
}

bool IsLink(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_symlink(path, error);
}

}  // namespace

absl::StatusOr<std::string> OutputPath(const std::string& path) {
  std::string target = IsLink(path) ? Target(path) : path;
  if (IsLink(target)) {
    return absl::UnknownError("a symbolic link that leads nowhere");
  }
  // A rename would put a file in the place of /dev/null.
  struct stat info;
  if (stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::UnknownError("not a regular file");
  }
  return target;
}

absl::Status WriteFile(const std::string& path, absl::string_view bytes) {
  AGG_RETURN_IF_ERROR(CheckFileSize(static_cast<int64_t>(bytes.size())));
  AtomicFile file(path);
  AGG_RETURN_IF_ERROR(file.Open());
  std::ofstream part(file.part_path(), std::ios::binary);
  errno = ENOSPC;  // what a short write means
  part.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  part.close();
  if (!part) return ErrnoError();
  return file.Commit();
}

absl::Status OutputError(absl::string_view name, const std::string& path,
                         const absl::Status& error) {
  return FieldError(name,
                    absl::StrCat(Quoted(path), " (", error.message(), ")"),
                    "a new path, a file to be replaced, or a link to one, in "
                    "a folder that exists and has room");
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(IsLink(path) ? Target(path) : path),
      part_path_(absl::StrCat(path_, ".part")) {}

AtomicFile::~AtomicFile() {
  if (open_) std::remove(part_path_.c_str());
}

absl::Status AtomicFile::Open() {
  AGG_RETURN_IF_ERROR(OutputPath(path_).status());
  const int fd =
      open(part_path_.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return ErrnoError();
  close(fd);
  open_ = true;
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  AGG_DCHECK(open_);
  // The data before the name: else a crash could leave the name without it.
  if (!Sync(part_path_, O_RDONLY | O_NOFOLLOW) ||
      std::rename(part_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoError();
  }
  open_ = false;
  // A file system that cannot do this has still renamed: not an error.
  (void)Sync(FolderOf(path_), O_RDONLY | O_DIRECTORY);
  return absl::OkStatus();
}

}  // namespace agg
