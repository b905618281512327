// A process that runs out of memory as it logs. On its own: it replaces the
// allocation of its process.
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>

#include "gtest/gtest.h"
#include "server/base/log.h"

namespace {

// Allocations that this thread may still make; below 0: without end.
thread_local int allocations_left = -1;

}  // namespace

// Not inline: gcc warns of memory of new that free takes.
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const bytes = std::malloc(size == 0 ? 1 : size);
  if (bytes == nullptr) throw std::bad_alloc();
  return bytes;
}
__attribute__((noinline)) void operator delete(void* bytes) noexcept {
  std::free(bytes);
}
__attribute__((noinline)) void operator delete(void* bytes,
                                               std::size_t) noexcept {
  std::free(bytes);
}

namespace agg {
namespace {

// As a server does: the thread that has no memory is not unwound, so that it
// keeps its locks, and says why the process ends.
[[noreturn]] void LogUntilThereIsNoMemory(int num_allocations) {
  alarm(10);  // seconds: one that waits for itself ends by a signal
  SetLogFormat(LogFormat::kJson);
  LogInfo("the first line, which makes what is made once, as of time zones");
  std::set_terminate([] {
    allocations_left = -1;
    if (GetLogFormat() == LogFormat::kJson) LogError("no memory");
    _exit(1);
  });
  std::thread([num_allocations] {
    allocations_left = num_allocations;
    for (;;) LogInfo("longer than what a string holds without an allocation");
  }).join();
  std::abort();
}

// Whichever allocation fails.
TEST(LogDeathTest, WhoHasNoMemoryForALineCanStillSaySo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 12; ++i) {
    EXPECT_EXIT(LogUntilThereIsNoMemory(i), testing::ExitedWithCode(1),
                "no memory")
        << i;
  }
}

}  // namespace
}  // namespace agg
