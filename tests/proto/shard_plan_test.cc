#include "proto/shard_plan.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape) {
  TensorSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  return spec;
}

constexpr int64_t kMi = kMaxSliceElements;

TEST(NumElementsTest, ScalarsEmptyAndProducts) {
  EXPECT_EQ(NumElements(Tensor("s", {})), 1);
  EXPECT_EQ(NumElements(Tensor("e", {4, 0, 7})), 0);
  EXPECT_EQ(NumElements(Tensor("m", {64, 10})), 640);
  EXPECT_EQ(NumElements(Manifest{{Tensor("s", {}), Tensor("m", {3, 2})}}), 7);
}

TEST(ShardPlanTest, SlicesDoNotDependOnTheNumberOfShards) {
  const Manifest manifest{{Tensor("big", {2 * kMi + 5}), Tensor("none", {0}),
                           Tensor("scalar", {})}};
  for (int num_shards : {1, 2, 3, 6}) {
    const auto plan = MakeShardPlan(manifest, num_shards);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->slices.size(), 4u);
    EXPECT_EQ(plan->slices[1].begin, kMi);
    EXPECT_EQ(plan->slices[1].num_elements, kMi);
    EXPECT_EQ(plan->slices[2].begin, 2 * kMi);
    EXPECT_EQ(plan->slices[2].num_elements, 5);
    EXPECT_EQ(plan->slices[3].tensor, 2);
    EXPECT_THAT(plan->slices_of_tensor[0], ElementsAre(0, 1, 2));
    EXPECT_TRUE(plan->slices_of_tensor[1].empty());
  }
}

// Every slice is on one shard, and loads differ by one slice at most.
TEST(ShardPlanTest, PlacementIsBalancedAndComplete) {
  Manifest manifest;
  for (int i = 0; i < 40; ++i) {
    manifest.tensors.push_back(
        Tensor("t" + std::to_string(i), {(i * 7919) % 5000 + 1}));
  }
  for (int num_shards : {1, 2, 3, 7, 50}) {
    const auto plan = MakeShardPlan(manifest, num_shards);
    ASSERT_TRUE(plan.ok());
    std::vector<int> seen(plan->slices.size(), 0);
    std::vector<int64_t> load(num_shards, 0);
    for (int shard = 0; shard < num_shards; ++shard) {
      const auto& slices = plan->slices_of_shard[shard];
      EXPECT_TRUE(std::is_sorted(slices.begin(), slices.end()));
      for (int32_t slice : slices) {
        ++seen[slice];
        EXPECT_EQ(plan->slices[slice].shard, shard);
        load[shard] += plan->slices[slice].num_elements;
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 40);
    const auto [least, most] = std::minmax_element(load.begin(), load.end());
    EXPECT_LE(*most - *least, 5000);
  }
}

// The largest slice first, to the shard with the least elements, and of those
// that have as many to the first.
TEST(ShardPlanTest, TheLeastLoadedShardIsNext) {
  Manifest manifest;
  for (int i = 0; i < 60; ++i) {
    manifest.tensors.push_back(Tensor("t" + std::to_string(i), {i % 7}));
  }
  for (const int num_shards : {1, 3, 16}) {
    const auto plan = MakeShardPlan(manifest, num_shards);
    ASSERT_TRUE(plan.ok());
    std::vector<int64_t> load(num_shards, 0);
    for (int64_t size = 6; size > 0; --size) {
      for (const Slice& slice : plan->slices) {
        if (slice.num_elements != size) continue;
        const auto least = std::min_element(load.begin(), load.end());
        EXPECT_EQ(slice.shard, least - load.begin());
        *least += size;
      }
    }
  }
}

TEST(ShardPlanTest, AShardMayHaveNoSlice) {
  const auto plan = MakeShardPlan(Manifest{{Tensor("x", {4})}}, 3);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->slices_of_shard[0], ElementsAre(0));
  EXPECT_TRUE(plan->slices_of_shard[1].empty());
  EXPECT_TRUE(plan->slices_of_shard[2].empty());
}

TEST(ShardPlanTest, NumberOfShardsIsLimited) {
  const Manifest manifest{{Tensor("x", {4})}};
  EXPECT_THAT(std::string(MakeShardPlan(manifest, 0).status().message()),
              HasSubstr("num_shards is 0"));
  EXPECT_FALSE(MakeShardPlan(manifest, 1025).ok());
  EXPECT_TRUE(MakeShardPlan(manifest, 1024).ok());
}

struct BadManifest {
  std::string name;
  Manifest manifest;
  std::string message;
};

TEST(ValidateManifestTest, NamesWhatIsWrong) {
  const std::vector<BadManifest> cases = {
      {"none", {}, "0 tensors"},
      {"empty name", {{Tensor("", {1})}}, "name has 0 bytes"},
      {"long name", {{Tensor(std::string(513, 'n'), {1})}}, "513 bytes"},
      {"long group",
       {{TensorSpec{"a", {1}, std::string(513, 'g'), false}}},
       "manifest.tensors[0].group has 513 bytes; allowed: at most 512"},
      {"twice", {{Tensor("a", {1}), Tensor("a", {2})}}, "\"a\" is named twice"},
      {"negative", {{Tensor("a", {2, -1})}}, "the dimension -1"},
      {"dimensions",
       {{Tensor("a", {1, 1, 1, 1, 1, 1, 1, 1, 1})}},
       "9 dimensions"},
      {"large", {{Tensor("a", {int64_t{1} << 41})}}, "elements"},
      {"overflow",
       {{Tensor("a", {int64_t{1} << 62, int64_t{1} << 62})}},
       "elements"},
      {"in total",
       {{Tensor("a", {int64_t{1} << 40}), Tensor("b", {1})}},
       "\"b\" brings"},
  };
  for (const BadManifest& c : cases) {
    const absl::Status status = ValidateManifest(c.manifest);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.name;
  }
  EXPECT_TRUE(ValidateManifest({{Tensor(std::string(512, 'n'), {1})}}).ok());
}

TEST(CompareManifestsTest, NamesTheFirstDifference) {
  const Manifest job{{Tensor("a", {2}), Tensor("b", {3})}};
  EXPECT_TRUE(CompareManifests(job, job).ok());
  Manifest other = job;
  other.tensors[1].shape = {4};
  EXPECT_THAT(std::string(CompareManifests(job, other).message()),
              HasSubstr("tensor 1"));
  other = job;
  other.tensors[0].optional = true;
  EXPECT_THAT(std::string(CompareManifests(job, other).message()),
              HasSubstr("tensor 0"));
  other = job;
  other.tensors.pop_back();
  EXPECT_THAT(std::string(CompareManifests(job, other).message()),
              HasSubstr("only the job has \"b\""));
  EXPECT_THAT(std::string(CompareManifests(other, job).message()),
              HasSubstr("the job has no \"b\""));
}

}  // namespace
}  // namespace agg
