#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker_client/row_pusher.h"

namespace agg {
namespace {

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
