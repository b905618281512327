#include "server/ingest/gradient_rows.h"

#include <memory>
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
  EXPECT_EQ(rows.row(2), nullptr);
  std::unique_ptr<Buffer> memory = *rows.Allocate();
  EXPECT_EQ(memory->num_bytes(), layout.num_elements * 2);
  EXPECT_EQ(rows.num_rows(), 0);
  const Buffer* const row = memory.get();
  rows.Add(2, std::move(memory));
  EXPECT_EQ(rows.row(2), row);
  EXPECT_EQ(rows.row(1), nullptr);
  EXPECT_EQ(rows.num_rows(), 1);
  EXPECT_EQ(rows.SliceAddress(2, 0), row->host());
  EXPECT_EQ(rows.SliceAddress(2, 1), row->host() + 64 * 2);
  EXPECT_EQ(rows.SliceBytes(0), 80);
  EXPECT_EQ(rows.SliceBytes(1), 6);
}

TEST(GradientRowsTest, AShardWithoutSlicesHasRows) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {4}, "", false}};
  const ShardLayout layout = *MakeShardLayout(manifest, 2, 1);
  GradientRows rows(backend.get(), &layout, DType::kF32, 1);
  EXPECT_GT((*rows.Allocate())->num_bytes(), 0);
}

}  // namespace
}  // namespace agg
