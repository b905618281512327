// Copies that threads share: each element once, in parts that may be cut.
#include "worker_client/copy_threads.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>  // NOLINT
#include <vector>

#include "gtest/gtest.h"

namespace agg {
namespace {

// How often each element was copied, and where parts begin.
struct Copied {
  explicit Copied(int64_t num_elements) : times(num_elements) {}
  void Run(CopyThreads* threads) {
    threads->Run(static_cast<int64_t>(times.size()),
                 [this](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) ++times[i];
                   const std::lock_guard<std::mutex> lock(mutex);
                   begins.insert(begin);
                 });
  }
  std::vector<int> times;
  std::mutex mutex;
  std::set<int64_t> begins;
};

TEST(CopyThreadsTest, CopyEachElementOnceInPartsOfWholeBlocks) {
  for (const int num_threads : {1, 2, 3, 5}) {
    CopyThreads threads(num_threads);
    for (const int64_t num_elements :
         {int64_t{0}, int64_t{1}, CopyThreads::kLeastElements - 1,
          CopyThreads::kLeastElements, CopyThreads::kLeastElements + 77}) {
      Copied copied(num_elements);
      copied.Run(&threads);
      EXPECT_EQ(copied.times, std::vector<int>(num_elements, 1));
      const bool shared = num_elements >= CopyThreads::kLeastElements;
      EXPECT_EQ(copied.begins.size(), shared ? num_threads : 1u);
      for (const int64_t begin : copied.begins) {
        EXPECT_EQ(begin % CopyThreads::kPartAlignment, 0);
      }
    }
  }
}

// A part that waits until all have begun: on one thread it would wait for ever.
TEST(CopyThreadsTest, PartsRunAtTheSameTime) {
  CopyThreads threads(3);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> begun{0};
    threads.Run(CopyThreads::kLeastElements, [&](int64_t, int64_t) {
      ++begun;
      while (begun < 3) std::this_thread::yield();
    });
    EXPECT_EQ(begun, 3);
  }
}

TEST(CopyThreadsTest, WhoComesMeanwhileDoesItsOwn) {
  CopyThreads threads(2);
  std::atomic<int> parts{0};
  threads.Run(CopyThreads::kLeastElements, [&](int64_t, int64_t) {
    Copied inner(CopyThreads::kLeastElements);
    inner.Run(&threads);
    EXPECT_EQ(inner.begins.size(), 1u);
    ++parts;
  });
  EXPECT_EQ(parts, 2);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&threads] {
      for (int round = 0; round < 10; ++round) {
        Copied copied(CopyThreads::kLeastElements);
        copied.Run(&threads);
        EXPECT_EQ(copied.times,
                  std::vector<int>(CopyThreads::kLeastElements, 1));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace agg
