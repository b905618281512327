#include "tests/bench/process_barrier.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// Not the PRIVATE operations: the waiting parties may be other processes.
void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value,
          nullptr, nullptr, 0);
}

}  // namespace

void WaitAtBarrier(BarrierState* state, uint32_t num_parties) {
  // Before the arrival: the last party may change it right after.
  const uint32_t generation = state->generation.load();
  if (state->num_arrived.fetch_add(1) + 1 == num_parties) {
    state->num_arrived.store(0);
    state->generation.fetch_add(1);
    Futex(&state->generation, FUTEX_WAKE, INT_MAX);
    return;
  }
  // The kernel returns at once if the word has changed meanwhile.
  while (state->generation.load() == generation) {
    Futex(&state->generation, FUTEX_WAIT, generation);
  }
}

absl::StatusOr<BarrierState*> MapBarrier(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about = {};
  void* memory = MAP_FAILED;
  if (file >= 0 && fstat(file, &about) == 0 &&
      about.st_size >= static_cast<off_t>(sizeof(BarrierState))) {
    memory = mmap(nullptr, sizeof(BarrierState), PROT_READ | PROT_WRITE,
                  MAP_SHARED, file, 0);
  }
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) {
    return absl::NotFoundError(absl::StrCat("no barrier in ", path));
  }
  return static_cast<BarrierState*>(memory);
}

}  // namespace agg
