#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/round_engine.h"

namespace agg {
namespace {

using testing::HasSubstr;

// "a" is slices 0 to 2, "b" has no elements, "c" is slice 3.
ShardPlan Plan() {
  Manifest manifest;
  manifest.tensors = {{"a", {2 * kMaxSliceElements + 1}, "", false},
                      {"b", {0}, "", false},
                      {"c", {3}, "", false}};
  return *MakeShardPlan(manifest, 2);
}

// Entries whose sum depends on the order of the terms.
SliceGram Gram(int32_t slice) {
  const double thirds = slice + 1.0 / 3.0;
  return {slice, {thirds, 1e16 / (slice + 1), -thirds}, {}};
}

TEST(GramSumsTest, HasTheSameBitsInAnyOrderOfArrival) {
  const ShardPlan plan = Plan();
  std::vector<int32_t> order = {0, 1, 2, 3};
  do {
    GramSums sums(plan, {0, 1, 2}, 2, /*compensated=*/false);
    for (const int32_t slice : order) sums.Add(Gram(slice));
    const auto grams = sums.Take();
    ASSERT_TRUE(grams.ok()) << grams.status();
    ASSERT_EQ(grams->size(), 3u);
    for (int k = 0; k < 3; ++k) {
      const int i = k == 2 ? 1 : 0;
      const int j = k == 0 ? 0 : 1;
      EXPECT_EQ((*grams)[0](i, j),
                0.0 + Gram(0).hi[k] + Gram(1).hi[k] + Gram(2).hi[k]);
      EXPECT_EQ((*grams)[2](i, j), Gram(3).hi[k]);
      EXPECT_EQ((*grams)[1](i, j), 0.0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(GramSumsTest, ASumIsNeverMinusZero) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {2}, 1, /*compensated=*/false);
  sums.Add({3, {-0.0}, {}});
  EXPECT_FALSE(std::signbit((*sums.Take())[0](0, 0)));
}

TEST(GramSumsTest, AddsLowParts) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {0}, 1, /*compensated=*/true);
  for (const int32_t slice : {2, 0, 1}) sums.Add({slice, {1.0}, {1e-20}});
  const auto grams = sums.Take();
  ASSERT_TRUE(grams.ok()) << grams.status();
  EXPECT_EQ((*grams)[0](0, 0), 3.0);
  EXPECT_DOUBLE_EQ((*grams)[0].lo(0, 0), 3e-20);
}

TEST(GramSumsTest, NamesTheSliceThatIsMissingOrMisshapen) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {0, 2}, 2, /*compensated=*/false);
  sums.Add(Gram(0));
  sums.Add({1, {1.0}, {}});  // of one row
  sums.Add(Gram(2));
  sums.Add(Gram(3));
  const absl::Status status = sums.Take().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the partial Gram of slice 1, shard "));
}

TEST(GramSumsTest, IgnoresWhatNobodyAskedForAndRepeats) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {2}, 2, /*compensated=*/false);
  for (const int32_t slice : {-1, 0, 4, 3, 3}) sums.Add(Gram(slice));
  const auto grams = sums.Take();
  ASSERT_TRUE(grams.ok()) << grams.status();
  EXPECT_EQ((*grams)[0](0, 0), Gram(3).hi[0]);
}

}  // namespace
}  // namespace agg
