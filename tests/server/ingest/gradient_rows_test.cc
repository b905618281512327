#include "server/ingest/gradient_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace agg {
namespace {

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
