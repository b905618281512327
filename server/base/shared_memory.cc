// memfd_create needs no path and no limit of /dev/shm: the memory counts
// against the process that touches it.
#include "server/base/shared_memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/base/file_descriptor.h"

#ifndef F_SEAL_FUTURE_WRITE  // of Linux 5.1, and of newer C libraries
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace agg {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

absl::Status SystemError(absl::string_view call) {
  return absl::UnavailableError(
      absl::StrCat("shared memory: ", call, ": ", std::strerror(errno)));
}

// Aligned to huge pages, or null with errno.
char* MapAligned(int fd, int64_t num_bytes, int protection) {
  const bool aligns = num_bytes >= kHugePageBytes;
  const int64_t reserved_bytes = num_bytes + (aligns ? kHugePageBytes : 0);
  void* const reserved = mmap(nullptr, static_cast<size_t>(reserved_bytes),
                              PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(reserved);
  if (aligns) {
    const int64_t address = reinterpret_cast<intptr_t>(begin);
    const int64_t head =
        (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    if (head > 0) munmap(begin, static_cast<size_t>(head));
    begin += head;
    // The mapping's last page may be cut: its end is a page's.
    constexpr int64_t kPageBytes = 4096;
    const int64_t used = (num_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    const int64_t tail = reserved_bytes - head - used;
    if (tail > 0) munmap(begin + used, static_cast<size_t>(tail));
  }
  if (mmap(begin, static_cast<size_t>(num_bytes), protection,
           MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(begin, static_cast<size_t>(num_bytes));
    errno = error;
    return nullptr;
  }
  // Advice only: without huge pages everything works, slower.
  madvise(begin, static_cast<size_t>(num_bytes), MADV_HUGEPAGE);
  return begin;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(
    int64_t num_bytes, Others others) {
  if (num_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot share ", num_bytes, " bytes"));
  }
  FileDescriptor fd(memfd_create("agg", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SystemError("memfd_create");
  const absl::Status size = CheckFileSize(num_bytes);
  if (!size.ok()) {
    return absl::UnavailableError(
        absl::StrCat("shared memory: ", size.message()));
  }
  if (ftruncate(fd.get(), num_bytes) != 0) return SystemError("ftruncate");
  char* const data = MapAligned(fd.get(), num_bytes, PROT_READ | PROT_WRITE);
  if (data == nullptr) return SystemError("mmap");
  const int shared = fd.get();
  auto memory =
      absl::WrapUnique(new SharedMemory(std::move(fd), data, num_bytes));
  // After the mapping above, which stays writable.
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
                    (others == Others::kRead ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(shared, F_ADD_SEALS, seals) != 0) return SystemError("F_ADD_SEALS");
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Map(
    const FileDescriptor& fd, int64_t num_bytes, Others access) {
  struct stat file = {};
  if (num_bytes < 1 || fstat(fd.get(), &file) != 0 ||
      file.st_size < num_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory has ", file.st_size, " bytes of ",
                     num_bytes, " that it is said to have"));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        "shared memory is not sealed against shrinking");
  }
  const int protection =
      access == Others::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  char* const data = MapAligned(fd.get(), num_bytes, protection);
  if (data == nullptr) return SystemError("mmap");
  return absl::WrapUnique(new SharedMemory(FileDescriptor(), data, num_bytes));
}

SharedMemory::~SharedMemory() {
  munmap(data_, static_cast<size_t>(num_bytes_));
  if (!empties_) return;
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            num_bytes_);
}

absl::Status SharedMemory::Populate() {
  if (madvise(data_, static_cast<size_t>(num_bytes_), MADV_POPULATE_WRITE) ==
          0 ||
      errno == EINVAL) {  // before Linux 5.14: pages come when they are touched
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "no ", num_bytes_, " bytes of shared memory: ", std::strerror(errno)));
}

}  // namespace agg
