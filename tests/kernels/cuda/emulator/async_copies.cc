// Asynchronous copies to shared memory, made when their thread waits for them
// and not a moment before: what a real device allows, and the worst it may do.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/kernels/cuda/emulator/device.h"

namespace agg::emulator {
namespace {

struct Copy {
  unsigned char* to;
  const void* from;
  size_t num_bytes;
  size_t num_filled;
  int64_t group;  // its number among the thread's
};

struct Copies {
  std::deque<Copy> waiting;
  int64_t num_groups = 0;  // that have been committed
};

Copies& OfThread() {
  static auto* const all = new std::vector<Copies>(1024);
  return (*all)[thread_index.x];
}

bool IsAligned(const void* address, size_t num_bytes) {
  return reinterpret_cast<uintptr_t>(address) % num_bytes == 0;
}

}  // namespace

void StartCopy(void* to, const void* from, size_t num_bytes,
               size_t num_filled) {
  if (!IsAligned(to, num_filled) || !IsAligned(from, num_filled)) {
    std::fprintf(stderr, "misaligned asynchronous copy\n");
    std::abort();
  }
  Copies& copies = OfThread();
  copies.waiting.push_back({static_cast<unsigned char*>(to), from, num_bytes,
                            num_filled, copies.num_groups});
  std::memset(to, kPoison, num_filled);
}

void CommitCopies() { ++OfThread().num_groups; }

void WaitForCopies(int64_t num_left) {
  Copies& copies = OfThread();
  while (!copies.waiting.empty() &&
         copies.waiting.front().group < copies.num_groups - num_left) {
    const Copy& copy = copies.waiting.front();
    std::memcpy(copy.to, copy.from, copy.num_bytes);
    std::memset(copy.to + copy.num_bytes, 0, copy.num_filled - copy.num_bytes);
    copies.waiting.pop_front();
  }
}

void CheckCopiesEnded() {
  if (OfThread().waiting.empty()) return;
  std::fprintf(stderr, "a thread ended before its copies\n");
  std::abort();
}

}  // namespace agg::emulator
