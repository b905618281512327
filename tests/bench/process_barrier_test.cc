#include "tests/bench/process_barrier.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>  // NOLINT
#include <vector>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(ProcessBarrierTest, NobodyIsARoundAhead) {
  constexpr int kParties = 4;
  constexpr int kRounds = 500;
  BarrierState state;
  std::atomic<int> num_begun{0};
  std::atomic<int> num_wrong{0};
  std::vector<std::thread> threads;
  for (int party = 0; party < kParties; ++party) {
    threads.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        ++num_begun;
        WaitAtBarrier(&state, kParties);
        // All have begun this round, and nobody begins the next one before all
        // are here again.
        if (num_begun.load() != round * kParties) ++num_wrong;
        WaitAtBarrier(&state, kParties);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong.load(), 0);
}

TEST(ProcessBarrierTest, ProcessesMeetInAFile) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/barrier";
  std::ofstream(path) << std::string(sizeof(BarrierState), '\0');
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  const auto state = MapBarrier(path);
  ASSERT_TRUE(state.ok()) << state.status();
  for (int round = 0; round < 100; ++round) WaitAtBarrier(*state, 2);
  if (child == 0) _exit(0);
  int result = -1;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
}

TEST(ProcessBarrierTest, AFileThatIsMissingOrShortIsNone) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/short";
  EXPECT_FALSE(MapBarrier(path).ok());
  std::ofstream(path) << "1234";
  EXPECT_FALSE(MapBarrier(path).ok());
}

}  // namespace
}  // namespace agg
