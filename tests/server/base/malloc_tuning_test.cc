#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/process_memory.h"

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

// How many arenas malloc has once `num_threads` threads, all alive at a time,
// have allocated something.
int NumArenas(int num_threads) {
  std::mutex mutex;
  std::condition_variable changed;
  int num_waiting = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&] {
      void* volatile block = std::malloc(size_t{1} << 16);
      std::free(block);
      std::unique_lock<std::mutex> lock(mutex);
      ++num_waiting;
      changed.notify_all();
      changed.wait(lock, [&] { return num_waiting == num_threads; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  char* text = nullptr;
  size_t size = 0;
  FILE* const file = open_memstream(&text, &size);
  malloc_info(0, file);
  fclose(file);
  int num_arenas = 0;
  for (const char* at = text; (at = std::strstr(at, "<heap nr=")); ++at) {
    ++num_arenas;
  }
  free(text);
  return num_arenas;
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
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_GE(NumArenas(1), 1);
  EXPECT_LE(NumArenas(4 * processors + 8), std::max(2, processors));
}

}  // namespace
}  // namespace agg
