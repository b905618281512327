#include "server/ingest/shard_layout.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::ElementsAre;

Manifest TestManifest() {
  Manifest manifest;
  manifest.tensors = {{"w", {kMaxSliceElements + 10}, "", false},
                      {"scalar", {}, "", false},
                      {"empty", {2, 0}, "", false},
                      {"b", {32}, "", false}};
  return manifest;
}

TEST(ShardLayoutTest, AlignsSlicesOneBehindTheOther) {
  const ShardLayout layout = *MakeShardLayout(TestManifest(), 1, 0);
  EXPECT_THAT(layout.slices, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(layout.local_slice, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(layout.ranges.size(), 4u);
  const int64_t begins[] = {0, kMaxSliceElements, kMaxSliceElements + 32,
                            kMaxSliceElements + 64};
  const int64_t sizes[] = {kMaxSliceElements, 10, 1, 32};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(layout.ranges[i].begin, begins[i]);
    EXPECT_EQ(layout.ranges[i].num_elements, sizes[i]);
    EXPECT_EQ(layout.ranges[i].begin % kLayoutAlignment, 0);
  }
  EXPECT_EQ(layout.num_elements, kMaxSliceElements + 96);
  // What people see counts no padding.
  EXPECT_EQ(layout.num_parameters, kMaxSliceElements + 43);
}

TEST(ShardLayoutTest, EverySliceIsOnOneShard) {
  for (int num_shards : {1, 2, 3, 6}) {
    int64_t num_elements = 0, num_parameters = 0;
    std::vector<int> owners(4, 0);
    for (int k = 0; k < num_shards; ++k) {
      const ShardLayout layout =
          *MakeShardLayout(TestManifest(), num_shards, k);
      ASSERT_EQ(layout.ranges.size(), layout.slices.size());
      num_parameters += layout.num_parameters;
      for (size_t i = 0; i < layout.slices.size(); ++i) {
        ++owners[layout.slices[i]];
        EXPECT_EQ(layout.local_slice[layout.slices[i]], static_cast<int>(i));
        num_elements += layout.ranges[i].num_elements;
      }
    }
    EXPECT_THAT(owners, testing::Each(1)) << num_shards;
    EXPECT_EQ(num_elements, NumElements(TestManifest()));
    EXPECT_EQ(num_parameters, num_elements);
  }
}

TEST(ShardLayoutTest, AShardMayHaveNothing) {
  const ShardLayout layout = *MakeShardLayout(TestManifest(), 6, 5);
  EXPECT_TRUE(layout.slices.empty());
  EXPECT_EQ(layout.num_elements, 0);
  EXPECT_THAT(layout.local_slice, testing::Each(-1));
}

TEST(ShardLayoutTest, RefusesABadManifest) {
  EXPECT_EQ(MakeShardLayout(Manifest(), 1, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace agg
