#include "tests/bench/process_barrier.h"

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

// At two addresses, as in two processes.
TEST(ProcessBarrierTest, TwoMappingsOfAFileMeet) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/barrier";
  std::ofstream(path) << std::string(sizeof(BarrierState), '\0');
  const auto one = MapBarrier(path);
  const auto other = MapBarrier(path);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_NE(*one, *other);
  std::thread thread([&] {
    for (int round = 0; round < 100; ++round) WaitAtBarrier(*other, 2);
  });
  for (int round = 0; round < 100; ++round) WaitAtBarrier(*one, 2);
  thread.join();
  EXPECT_EQ((*one)->generation.load(), 100u);
}

TEST(ProcessBarrierTest, AFileThatIsMissingOrShortIsNone) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/short";
  EXPECT_FALSE(MapBarrier(path).ok());
  std::ofstream(path) << "1234";
  EXPECT_FALSE(MapBarrier(path).ok());
}

}  // namespace
}  // namespace agg
