// FileSystem by plain system calls: a stream would hide which call failed, and
// could neither sync a file nor a folder.
#include "server/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/file_descriptor.h"

namespace agg {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr mode_t kFolderMode = 0755;

// Of errno.
absl::Status SystemError(absl::string_view operation, const std::string& path) {
  return FileErrorOf(errno, operation, path);
}

// A file descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class SystemWritableFile : public WritableFile {
 public:
  SystemWritableFile(std::string path, Descriptor fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::Status Append(absl::string_view bytes) override {
    const absl::Status size =
        CheckFileSize(num_bytes_ + static_cast<int64_t>(bytes.size()));
    if (!size.ok()) {
      return absl::Status(size.code(), absl::StrCat("cannot write ", path_,
                                                    ": ", size.message()));
    }
    while (!bytes.empty()) {
      const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return SystemError("write", path_);
      num_bytes_ += written;
      bytes.remove_prefix(written);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (fsync(fd_.get()) != 0) return SystemError("sync", path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    // Some file systems report only here what they could not write.
    if (close(fd_.Release()) != 0) return SystemError("close", path_);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  Descriptor fd_;
  int64_t num_bytes_ = 0;  // it was created empty
};

class SystemReadableFile : public ReadableFile {
 public:
  SystemReadableFile(std::string path, Descriptor fd, int64_t num_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), num_bytes_(num_bytes) {}

  int64_t num_bytes() const override { return num_bytes_; }

  absl::Status Read(int64_t offset, absl::Span<char> bytes) override {
    while (!bytes.empty()) {
      const ssize_t num_read =
          pread(fd_.get(), bytes.data(), bytes.size(), offset);
      if (num_read < 0 && errno == EINTR) continue;
      if (num_read < 0) return SystemError("read", path_);
      if (num_read == 0) {
        return absl::DataLossError(
            absl::StrCat("cannot read ", path_, ": it ends at ", offset));
      }
      offset += num_read;
      bytes.remove_prefix(num_read);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const Descriptor fd_;
  const int64_t num_bytes_;
};

class SystemFiles : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    Descriptor fd(open(path.c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                       kFileMode));
    if (fd.get() < 0) return SystemError("create", path);
    return std::make_unique<SystemWritableFile>(path, std::move(fd));
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    // Not blocking: a pipe without a writer would wait for one.
    Descriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat info = {};
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      return SystemError("open", path);
    }
    if (!S_ISREG(info.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot open ", path, ": not a regular file"));
    }
    return std::make_unique<SystemReadableFile>(path, std::move(fd),
                                                info.st_size);
  }

  absl::Status CreateFolder(const std::string& path) override {
    if (mkdir(path.c_str(), kFolderMode) == 0) return absl::OkStatus();
    const int error = errno;
    struct stat info = {};
    if (error == EEXIST && stat(path.c_str(), &info) == 0 &&
        S_ISDIR(info.st_mode)) {
      return absl::OkStatus();
    }
    errno = error;
    return SystemError("create folder", path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return SystemError("rename to", to);
  }

  absl::Status SyncFolder(const std::string& path) override {
    const Descriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return SystemError("open folder", path);
    // EINVAL: such a file system has no fsync of folders.
    if (fsync(fd.get()) == 0 || errno == EINVAL) return absl::OkStatus();
    return SystemError("sync folder", path);
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    DIR* const folder = opendir(path.c_str());
    if (folder == nullptr) return SystemError("list", path);
    std::vector<std::string> names;
    // At the end and after an error readdir returns null; errno says which.
    errno = 0;
    while (const dirent* const entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const absl::Status status =
        errno == 0 ? absl::OkStatus() : SystemError("list", path);
    closedir(folder);
    if (!status.ok()) return status;
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status Remove(const std::string& path) override {
    if (std::remove(path.c_str()) == 0) return absl::OkStatus();
    return SystemError("remove", path);
  }
};

}  // namespace

absl::Status FileErrorOf(int error, absl::string_view operation,
                         const std::string& path) {
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat("cannot ", operation, " ", path));
  const bool of_a_peer = absl::IsAborted(status) ||
                         absl::IsUnavailable(status) ||
                         absl::IsCancelled(status);
  return of_a_peer ? absl::UnknownError(status.message()) : status;
}

std::unique_ptr<FileSystem> MakeSystemFiles() {
  return std::make_unique<SystemFiles>();
}

}  // namespace agg
