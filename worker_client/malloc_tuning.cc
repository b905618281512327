// Keeps freed memory in the process: glibc would give each large message's
// pages back, and take new ones for the next.
#include "worker_client/malloc_tuning.h"

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace agg {

void TuneMalloc() {
#if defined(__GLIBC__)
  constexpr int kKeepBytes = 1 << 30;
  constexpr int kGrowBytes = 64 << 20;
  // Both thresholds or none: setting one keeps the other at 128 KiB for ever.
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr &&
      std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) {
    mallopt(M_MMAP_THRESHOLD, kKeepBytes);
    mallopt(M_TRIM_THRESHOLD, kKeepBytes);
  }
  if (std::getenv("MALLOC_TOP_PAD_") == nullptr) {
    mallopt(M_TOP_PAD, kGrowBytes);
  }
#endif
}

}  // namespace agg
