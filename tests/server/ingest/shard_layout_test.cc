#include "server/ingest/shard_layout.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/ingest/gradient_rows.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

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

TEST(GradientRowsTest, ARankHasItsRowOnceItIsAdded) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {40}, "", false}, {"b", {3}, "", false}};
  const ShardLayout layout = *MakeShardLayout(manifest, 1, 0);
  GradientRows rows(backend.get(), &layout, DType::kBF16, 3);
  EXPECT_EQ(rows.Find(2, 7), nullptr);
  std::unique_ptr<Buffer> memory = *rows.Allocate();
  EXPECT_EQ(memory->num_bytes(), layout.num_elements * 2);
  EXPECT_EQ(rows.num_rows(), 0);
  const Buffer* const row = memory.get();
  rows.Add(2, std::move(memory));
  EXPECT_EQ(rows.Find(2, 7).get(), row);
  EXPECT_EQ(rows.Find(1, 7), nullptr);
  EXPECT_EQ(rows.num_rows(), 1);
  EXPECT_EQ(rows.PlaceIn(*row, 0).elements, row->host());
  EXPECT_EQ(rows.PlaceIn(*row, 1).elements, row->host() + 64 * 2);
  EXPECT_EQ(rows.PlaceIn(*row, 1).scales, nullptr);
  EXPECT_EQ(rows.SliceOffset(0), 0);
  EXPECT_EQ(rows.SliceOffset(1), 64 * 2);
}

TEST(GradientRowsTest, Int8RowsHaveScalesBehindTheirElements) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {257}, "", false}, {"b", {3}, "", false}};
  const ShardLayout layout = *MakeShardLayout(manifest, 1, 0, DType::kI8);
  ASSERT_EQ(layout.num_elements, 768);
  EXPECT_EQ(layout.ranges[1].begin, 512);
  GradientRows rows(backend.get(), &layout, DType::kI8, 1);
  const std::unique_ptr<Buffer> memory = *rows.Allocate();
  EXPECT_EQ(memory->num_bytes(), 768 + 3 * 4);
  char* const row = memory->host();
  EXPECT_EQ(rows.PlaceIn(*memory, 0).elements, row);
  EXPECT_EQ(rows.PlaceIn(*memory, 0).scales, row + 768);
  EXPECT_EQ(rows.PlaceIn(*memory, 1).elements, row + 512);
  EXPECT_EQ(rows.PlaceIn(*memory, 1).scales, row + 768 + 8);
  // A slice that is cleared loses its scales, too, and others keep theirs.
  std::fill_n(row, 768 + 12, static_cast<char>(1));
  rows.Clear(*memory, 1);
  EXPECT_EQ(std::string(row, 768 + 12),
            std::string(512, 1) + std::string(3, 0) + std::string(253, 1) +
                std::string(8, 1) + std::string(4, 0));
}

TEST(GradientRowsTest, WhatIsGrantedToASessionIsNoOtherOnes) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {40}, "", false}};
  const ShardLayout layout = *MakeShardLayout(manifest, 1, 0);
  GradientRows rows(backend.get(), &layout, DType::kF32, 2);
  EXPECT_EQ(rows.Grant(1, 7), nullptr);  // there is nothing yet
  rows.Add(1, *rows.Allocate());
  const auto granted = rows.Grant(1, 7);
  ASSERT_NE(granted, nullptr);
  EXPECT_EQ(rows.Grant(1, 7), granted);
  EXPECT_TRUE(rows.Granted(1, 7));
  EXPECT_FALSE(rows.HasCommon(1));
  EXPECT_EQ(rows.Find(1, 7), granted);
  EXPECT_EQ(rows.Find(1, 8), nullptr);
  rows.Add(1, *rows.Allocate());
  ASSERT_NE(rows.Find(1, 8), nullptr);
  EXPECT_NE(rows.Find(1, 8), granted);
  EXPECT_EQ(rows.num_rows(), 1);  // a rank is one row of the plan
  // Its session ends: only who still reads it has it.
  auto dropped = rows.Keep(1, [](uint64_t session) { return session == 8; });
  EXPECT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[7], granted);
  dropped.clear();
  EXPECT_FALSE(rows.HasGranted(1));
  EXPECT_NE(rows.Find(1, 7), granted);
  EXPECT_EQ(granted.use_count(), 1);
}

TEST(GradientRowsTest, AShardWithoutSlicesHasRows) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {4}, "", false}};
  const ShardLayout layout = *MakeShardLayout(manifest, 2, 1);
  GradientRows rows(backend.get(), &layout, DType::kF32, 1);
  EXPECT_GT((*rows.Allocate())->num_bytes(), 0);
  const ShardLayout int8 = *MakeShardLayout(manifest, 2, 1, DType::kI8);
  GradientRows int8_rows(backend.get(), &int8, DType::kI8, 1);
  EXPECT_EQ((*int8_rows.Allocate())->num_bytes(), 260);
}

}  // namespace
}  // namespace agg
