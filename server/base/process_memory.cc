// Settings of glibc's malloc, which would otherwise give each large message's
// pages back and take new ones for the next; and an allocation that fails with
// a status.
#include "server/base/process_memory.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"

namespace agg {

namespace {

bool IsSet(const char* name) { return std::getenv(name) != nullptr; }

#if defined(__GLIBC__)
// What a thread of gRPC frees in an arena stays there for that arena alone, and
// so each of glibc's 8 per processor comes to hold as much as all messages that
// are on their way take at most. One per processor is enough: deploy/bench.sh
// has a server's memory by its plan (100 MB rows of 4 workers, TCP: 1.20
// before, 1.06 with it, on 2026-11-22 with 2 processors).
int NumArenas() {
  return std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
}
#endif

bool EnvironmentHasSettings() {
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  return IsSet("MALLOC_MMAP_THRESHOLD_") || IsSet("MALLOC_TRIM_THRESHOLD_") ||
         IsSet("MALLOC_TOP_PAD_") ||
         (tunables != nullptr &&
          std::strstr(tunables, "glibc.malloc.") != nullptr);
}

std::atomic<bool> trim_is_due{false};

}  // namespace

void AskForTrim() { trim_is_due = true; }

bool TrimIfAsked(size_t keep_bytes) {
  if (!trim_is_due.exchange(false)) return false;
#if defined(__GLIBC__)
  malloc_trim(keep_bytes);
#endif
  return true;
}

bool TuneMalloc() {
  if (EnvironmentHasSettings()) return false;
#if defined(__GLIBC__)
  // Both thresholds, since setting one freezes the other at its start value.
  // Older releases of glibc refuse a higher one for mappings.
  constexpr int kMmapBytes = 32 << 20;
  constexpr int kKeepBytes = 1 << 30;
  constexpr int kGrowBytes = 64 << 20;
  return mallopt(M_MMAP_THRESHOLD, kMmapBytes) != 0 &&
         mallopt(M_TRIM_THRESHOLD, kKeepBytes) != 0 &&
         mallopt(M_TOP_PAD, kGrowBytes) != 0 &&
         (IsSet("MALLOC_ARENA_MAX") || mallopt(M_ARENA_MAX, NumArenas()) != 0);
#else
  return false;
#endif
}

absl::Status TryResize(int64_t num_values, std::vector<float>* values) {
  AGG_DCHECK(num_values >= 0);
  const auto size = static_cast<size_t>(num_values);
  if (size <= values->max_size()) {
    try {
      values->resize(size);
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot allocate ", num_values, " float32 numbers of host memory"));
}

}  // namespace agg
