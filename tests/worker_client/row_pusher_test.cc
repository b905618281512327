#include "worker_client/row_pusher.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(PushTurnTest, WhoWaitsAndIsCancelledEndsWhileTheTurnIsTaken) {
  PushTurn turn;
  CancelSource first, second;
  // Branches: clang's analysis does not see through a macro's.
  if (!turn.Take(&first)) FAIL() << "the turn is free";
  std::thread waiter([&] { EXPECT_FALSE(turn.Take(&second)); });
  second.Cancel(absl::CancelledError("no more"));
  waiter.join();  // hangs if it waits for the turn
  // Cancelled before it asks, also of a turn that is free.
  EXPECT_FALSE(turn.Take(&second));
  first.Cancel(absl::CancelledError("too late"));  // the turn is taken
  turn.Give();
  EXPECT_FALSE(turn.Take(&second));
  if (!turn.Take(nullptr)) FAIL() << "the turn is free";
  turn.Give();
}

TEST(PushTurnTest, OneAtATime) {
  PushTurn turn;
  int count = 0;  // ThreadSanitizer sees two at a time
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      CancelSource cancel;
      for (int i = 0; i < 1000; ++i) {
        if (i % 2 == 0) {
          PushTurnLock lock(&turn);
          ++count;
        } else if (turn.Take(&cancel)) {
          ++count;
          turn.Give();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4 * 1000);
}

ShardRouter Router(const std::vector<int64_t>& sizes, int num_shards) {
  Manifest manifest;
  for (const int64_t size : sizes) {
    manifest.tensors.push_back(
        {"t" + std::to_string(manifest.tensors.size()), {size}, "", false});
  }
  return *ShardRouter::Create(manifest, num_shards);
}

TEST(TripShardsTest, SmallRowsGoToTheShardsThatHoldThem) {
  const int64_t most = kMaxTripBytes / 4;
  const struct {
    const char* name;
    std::vector<int64_t> sizes;
    int num_shards;
    DType dtype;
    std::vector<int> shards;
  } cases[] = {
      {"one shard", {3, 5}, 1, DType::kF32, {0}},
      {"two shards", {3, 5}, 2, DType::kF32, {0, 1}},
      {"a shard has nothing", {3, 5}, 3, DType::kF32, {0, 1}},
      {"no elements at all", {0}, 1, DType::kF32, {}},
      {"as much as may be", {most}, 1, DType::kF32, {0}},
      {"more", {most + 1}, 1, DType::kF32, {}},
      {"less bytes for an element", {2 * most}, 1, DType::kBF16, {0}},
      {"one shard has more", {most + 1, 1}, 2, DType::kF32, {}},
      {"too many slices",
       std::vector<int64_t>(kMaxTripSlices + 1, 1),
       1,
       DType::kF32,
       {}},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(TripShards(Router(test.sizes, test.num_shards), test.dtype),
              test.shards)
        << test.name;
  }
}

TEST(PipelinedTripShardsTest, RowsOfAnySizeGoToTheShardsThatHoldThem) {
  const int64_t large = 3 * kMaxTripBytes;
  EXPECT_EQ(PipelinedTripShards(Router({large, large}, 2)),
            std::vector<int>({0, 1}));
  EXPECT_EQ(PipelinedTripShards(Router({3}, 2)), std::vector<int>({0}));
  EXPECT_EQ(PipelinedTripShards(Router({0}, 1)), std::vector<int>());
}

TEST(TripTimeoutTest, OnlyAPipelinedTripWaitsForOthersAsLongAsARoundMay) {
  ClientOptions options;
  options.transfer_timeout = absl::Seconds(10);
  EXPECT_EQ(TripTimeout(options, false), absl::Seconds(10));
  EXPECT_EQ(TripTimeout(options, true), absl::InfiniteDuration());
  options.round_timeout = absl::Seconds(3);
  EXPECT_EQ(TripTimeout(options, false), absl::Seconds(3));
  EXPECT_EQ(TripTimeout(options, true), absl::Seconds(13));
}

}  // namespace
}  // namespace agg
