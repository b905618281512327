#include "worker_client/shard_regions.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "worker_client/row_encoding.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

constexpr int64_t kElements = 40;
constexpr int64_t kBytes = kElements * 2;

// One tensor of bf16 on one shard, whose memory this process has made.
class RowRegionTest : public testing::Test {
 protected:
  RowRegionTest()
      : router_(*ShardRouter::Create({{{"a", {kElements}, "", false}}}, 1)),
        memory_(*SharedMemory::Create(kBytes, SharedMemory::Others::kWrite)),
        feedback_({kElements}) {
    for (int64_t i = 0; i < kElements; ++i) {
      gradient_.push_back(1.0f + 0.001f * static_cast<float>(i));
    }
  }

  absl::StatusOr<std::unique_ptr<RowRegion>> Map(uint64_t offset) {
    v1::RegionReply reply;
    reply.mutable_row()->set_bytes(kBytes);
    reply.mutable_row()->set_dtype(v1::BF16);
    reply.add_row_offsets(offset);
    return RowRegion::Map(&router_, 0, DType::kBF16, reply,
                          FileDescriptor(dup(memory_->fd())));
  }
  BoundRow Row() {
    view_ = TensorView("a", gradient_);
    return BoundRow(absl::MakeConstSpan(&view_, 1));
  }
  std::string Written() const { return std::string(memory_->data(), kBytes); }
  // What a frame's payload would be.
  std::string Encoded() {
    std::string bytes(kBytes, '\0');
    EncodeFloats(gradient_, DType::kBF16, feedback_.ResidualOf(0, 0, kElements),
                 &bytes[0]);
    return bytes;
  }

  const ShardRouter router_;
  const std::unique_ptr<SharedMemory> memory_;
  ErrorFeedback feedback_;
  std::vector<float> gradient_;
  TensorView view_;
};

TEST_F(RowRegionTest, RoundsWithFeedbackAsFramesDo) {
  auto region = Map(0);
  ASSERT_TRUE(region.ok()) << region.status();
  std::string before;
  for (uint64_t round = 0; round < 3; ++round) {
    const RowName row{/*seed=*/false, round, 7, 0};
    feedback_.Begin(row);
    ASSERT_TRUE((*region)->Begin(row, false));
    ASSERT_TRUE((*region)->Write(0, Row(), &feedback_).ok());
    EXPECT_EQ(Written(), Encoded());
    EXPECT_NE(Written(), before);  // the residual is in it
    before = Written();
    feedback_.Settle(row, /*included=*/true);
  }
}

// The worker may have given the memory to something else.
TEST_F(RowRegionTest, ARowThatIsPushedAgainIsNotWrittenAgain) {
  auto region = Map(0);
  ASSERT_TRUE(region.ok()) << region.status();
  const RowName row{/*seed=*/false, 3, 7, 0};
  feedback_.Begin(row);
  ASSERT_TRUE((*region)->Begin(row, false));
  ASSERT_TRUE((*region)->Write(0, Row(), &feedback_).ok());
  const std::string written = Written();
  gradient_[5] = 100.0f;
  ASSERT_TRUE((*region)->Begin(row, false));
  ASSERT_TRUE((*region)->Write(0, Row(), &feedback_).ok());
  EXPECT_EQ(Written(), written);
}

TEST_F(RowRegionTest, APlaceOutsideIsRefused) {
  for (const uint64_t offset :
       {uint64_t{4}, uint64_t{kBytes} + 4, ~uint64_t{3}}) {
    EXPECT_TRUE(absl::IsInternal(Map(offset).status())) << offset;
  }
  EXPECT_TRUE(absl::IsInternal(Map(1).status()));  // not aligned
}

// Two tensors of int8, whose scales lie behind all elements: 3 blocks.
TEST(Int8RowRegionTest, RoundsToWhereElementsAndScalesLie) {
  constexpr int64_t kRowBytes = 3 * 260;
  const ShardRouter router = *ShardRouter::Create(
      {{{"a", {300}, "", false}, {"b", {5}, "", false}}}, 1);
  const auto memory =
      *SharedMemory::Create(kRowBytes, SharedMemory::Others::kWrite);
  const auto map = [&](uint64_t second) {
    v1::RegionReply reply;
    reply.mutable_row()->set_bytes(kRowBytes);
    reply.mutable_row()->set_dtype(v1::I8);
    reply.add_row_offsets(0);
    reply.add_row_offsets(second);
    return RowRegion::Map(&router, 0, DType::kI8, reply,
                          FileDescriptor(dup(memory->fd())));
  };
  // Among the scales, in the midst of a block, outside.
  for (const uint64_t offset : {768, 520, 1024}) {
    EXPECT_TRUE(absl::IsInternal(map(offset).status())) << offset;
  }
  auto region = map(512);
  ASSERT_TRUE(region.ok()) << region.status();
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i));
  }
  const std::vector<TensorView> row = {
      {"a", values}, {"b", absl::MakeConstSpan(values).subspan(7, 5)}};
  ErrorFeedback feedback({300, 5});
  for (uint64_t round = 0; round < 3; ++round) {
    const RowName name{/*seed=*/false, round, 7, 0};
    feedback.Begin(name);
    ASSERT_TRUE((*region)->Begin(name, false));
    ASSERT_TRUE((*region)->Write(0, {row}, &feedback).ok());
    ASSERT_TRUE((*region)->Write(1, {row}, &feedback).ok());
    // What a frame's payload would be: scales, then elements.
    std::string of_a(8 + 300, '\0'), of_b(4 + 5, '\0');
    EncodeFloats(values, DType::kI8, feedback.ResidualOf(0, 0, 300), &of_a[0]);
    EncodeFloats(absl::MakeConstSpan(values).subspan(7, 5), DType::kI8,
                 feedback.ResidualOf(1, 0, 5), &of_b[0]);
    const auto written = [&](int64_t begin, size_t size) {
      return std::string(memory->data() + begin, size);
    };
    EXPECT_EQ(written(0, 300), of_a.substr(8));
    EXPECT_EQ(written(512, 5), of_b.substr(4));
    EXPECT_EQ(written(768, 8), of_a.substr(0, 8));
    EXPECT_EQ(written(776, 4), of_b.substr(0, 4));
    feedback.Settle(name, /*included=*/true);
  }
}

}  // namespace
}  // namespace agg
