#include "server/base/malloc_tuning.h"

#include <malloc.h>
#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

// Allocates and frees what a large message takes. Whether malloc asked the
// kernel for memory of its own, which it then gave back.
bool TakesAMapping(size_t bytes) {
  const auto before = mallinfo2().hblks;
  // Through a volatile pointer, since a compiler may leave out both calls.
  void* volatile block = std::malloc(bytes);
  std::memset(block, 1, bytes);
  const bool mapped = mallinfo2().hblks != before;
  std::free(block);
  return mapped;
}

// One test, in this order: what was set cannot be taken back.
TEST(MallocTuningTest, KeepsWhatIsFreedUnlessTheEnvironmentSaysMore) {
  for (const std::string name : {"MALLOC_MMAP_THRESHOLD_",
                                 "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"}) {
    setenv(name.c_str(), "131072", 1);
    EXPECT_FALSE(TuneMalloc()) << name;
    unsetenv(name.c_str());
  }
  setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2", 1);
  EXPECT_FALSE(TuneMalloc());
  EXPECT_TRUE(TakesAMapping(8 << 20));
  setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);  // not of malloc
  EXPECT_TRUE(TuneMalloc());
  unsetenv("GLIBC_TUNABLES");
  EXPECT_FALSE(TakesAMapping(1 << 20));
  EXPECT_FALSE(TakesAMapping(8 << 20));
  const auto held = mallinfo2().arena;
  EXPECT_FALSE(TakesAMapping(8 << 20));
  EXPECT_EQ(mallinfo2().arena, held);
}

}  // namespace
}  // namespace agg
