#include "server/ingest/gradient_rows.h"

#include <memory>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace agg {
namespace {

TEST(GradientRowsTest, MakesARankItsRowOnce) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {40}, "", false}, {"b", {3}, "", false}};
  const ShardLayout layout = *MakeShardLayout(manifest, 1, 0);
  GradientRows rows(backend.get(), &layout, DType::kBF16, 3);
  EXPECT_EQ(rows.row(2), nullptr);
  ASSERT_EQ(rows.EnsureRow(2), absl::OkStatus());
  const Buffer* row = rows.row(2);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->num_bytes(), layout.num_elements * 2);
  ASSERT_EQ(rows.EnsureRow(2), absl::OkStatus());
  EXPECT_EQ(rows.row(2), row);
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
  ASSERT_EQ(rows.EnsureRow(0), absl::OkStatus());
  EXPECT_GT(rows.row(0)->num_bytes(), 0);
}

}  // namespace
}  // namespace agg
