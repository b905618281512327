// Memory that processes of one host share: made by one of them, handed to
// others as a file descriptor, mapped there.
#ifndef AGG_SERVER_BASE_SHARED_MEMORY_H_
#define AGG_SERVER_BASE_SHARED_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/file_descriptor.h"

namespace agg {

// A mapping, which ends with the object. Thread-compatible.
class SharedMemory {
 public:
  enum class Others : uint8_t { kWrite, kRead };

  // Zeros that this process may write, aligned to huge pages and advised to use
  // them where there are so many bytes. Sealed: nobody can change the size, so
  // that no access ever faults; with kRead nobody else can map it to write.
  // Takes no memory before it is touched. UNAVAILABLE with the system's reason;
  // INVALID_ARGUMENT for less than 1 byte.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(int64_t num_bytes,
                                                              Others others);

  // Maps the first bytes of what another process has created. `fd` is not
  // needed afterwards. FAILED_PRECONDITION if it has fewer bytes or may shrink,
  // which would end this process; UNAVAILABLE with the system's reason.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Map(
      const FileDescriptor& fd, int64_t num_bytes, Others access);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Makes the object's end empty the memory: its pages are free although
  // another process still maps it, and reads zeros there. For memory that
  // nobody may use any more: without this call, the others keep what is in it.
  // (What a driver of theirs has locked, CUDA's for example, stays theirs until
  // they let go.) Thread-safe. REQUIRES: Create made it for kWrite.
  void EmptyAtEnd() { empties_ = true; }

  // Takes the memory now. RESOURCE_EXHAUSTED: there is not so much.
  absl::Status Populate();

  char* data() const { return data_; }  // mapped with kRead: not to be written
  int64_t num_bytes() const { return num_bytes_; }
  // Descriptor to hand out to other processes; below 0 for memory that was
  // mapped.
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(FileDescriptor fd, char* data, int64_t num_bytes)
      : fd_(std::move(fd)), data_(data), num_bytes_(num_bytes) {}

  const FileDescriptor fd_;
  char* const data_;
  const int64_t num_bytes_;
  std::atomic<bool> empties_{false};
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_SHARED_MEMORY_H_
