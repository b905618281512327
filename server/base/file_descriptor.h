// An open file descriptor with one owner.
#ifndef AGG_SERVER_BASE_FILE_DESCRIPTOR_H_
#define AGG_SERVER_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace agg {

// Closes what it has. Movable; thread-compatible.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes `fd`; below 0: none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  int fd_ = -1;
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_FILE_DESCRIPTOR_H_
