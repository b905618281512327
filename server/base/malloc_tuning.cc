// Keeps freed memory in the process: glibc would give each large message's
// pages back, and take new ones for the next. Apart because it is not
// portable.
#include "server/base/malloc_tuning.h"

#include <cstdlib>
#include <cstring>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace agg {
namespace {

bool IsSet(const char* name) { return std::getenv(name) != nullptr; }

bool EnvironmentHasSettings() {
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  return IsSet("MALLOC_MMAP_THRESHOLD_") || IsSet("MALLOC_TRIM_THRESHOLD_") ||
         IsSet("MALLOC_TOP_PAD_") ||
         (tunables != nullptr &&
          std::strstr(tunables, "glibc.malloc.") != nullptr);
}

}  // namespace

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
         mallopt(M_TOP_PAD, kGrowBytes) != 0;
#else
  return false;
#endif
}

}  // namespace agg
