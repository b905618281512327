// Asks the kernel for huge pages and touches them at once, so that no round
// pays for page faults.
#include "kernels/cpu/cpu_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A zero-filled private mapping aligned to huge pages, or null.
char* MapHugePages(int64_t mapped_bytes) {
  const int64_t reserved_bytes = mapped_bytes + kHugePageBytes;
  void* const reserved =
      mmap(nullptr, static_cast<size_t>(reserved_bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(reserved);
  const int64_t address = reinterpret_cast<intptr_t>(begin);
  const int64_t head = RoundUp(address, kHugePageBytes) - address;
  const int64_t tail = reserved_bytes - head - mapped_bytes;
  if (head > 0) munmap(begin, static_cast<size_t>(head));
  if (tail > 0) {
    munmap(begin + head + mapped_bytes, static_cast<size_t>(tail));
  }
  // Advice only: without huge pages everything works, slower.
  madvise(begin + head, static_cast<size_t>(mapped_bytes), MADV_HUGEPAGE);
  // Pages are made when memory is planned (Join), not in the first rounds,
  // which took up to a second more for 100 MB.
  madvise(begin + head, static_cast<size_t>(mapped_bytes), MADV_POPULATE_WRITE);
  return begin + head;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> CpuBuffer::Allocate(int64_t num_bytes) {
  if (num_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes"));
  }
  char* data = nullptr;
  int64_t mapped_bytes = 0;
  if (num_bytes > std::numeric_limits<int64_t>::max() / 2) {
    // No such address range.
  } else if (num_bytes >= kHugePageBytes) {
    mapped_bytes = RoundUp(num_bytes, kHugePageBytes);
    data = MapHugePages(mapped_bytes);
  } else {
    const int64_t padded_bytes =
        std::max(kAlignment, RoundUp(num_bytes, kAlignment));
    data = static_cast<char*>(
        std::aligned_alloc(kAlignment, static_cast<size_t>(padded_bytes)));
    if (data != nullptr) {
      std::memset(data, 0, static_cast<size_t>(padded_bytes));
    }
  }
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes of host memory"));
  }
  return std::unique_ptr<Buffer>(new CpuBuffer(data, num_bytes, mapped_bytes));
}

CpuBuffer::~CpuBuffer() {
  if (mapped_bytes_ > 0) {
    munmap(data_, static_cast<size_t>(mapped_bytes_));
  } else {
    std::free(data_);
  }
}

}  // namespace agg
