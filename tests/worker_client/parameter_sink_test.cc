// What counts as landed. Frames that lie about slices and lengths:
// client_failures_test.cc and the fuzzer of frames.
#include "worker_client/parameter_sink.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"

namespace agg {
namespace {

class ParameterSinkTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kEpoch = 7;
  static constexpr uint64_t kVersion = 3;

  ParameterSinkTest() {
    arrivals_.Begin({kVersion, /*past=*/0, kEpoch, /*published=*/true});
  }

  // A frame of one tensor, which is one slice.
  grpc::ByteBuffer FrameOf(uint32_t slice, bool damaged = false) {
    const std::vector<float>& values = sent_[slice];
    const absl::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                  values.size() * sizeof(float));
    v1::FrameMeta meta;
    meta.set_epoch(kEpoch);
    meta.set_round(kVersion);
    meta.set_dtype(v1::F32);
    meta.add_slices(slice);
    meta.add_crc32c(Crc32c(bytes) ^ (damaged ? 1u : 0u));
    return MakeFrame(meta, {bytes}, std::make_shared<int>(0));
  }

  const ShardRouter router_ =
      *ShardRouter::Create({{{"a", {8}, "", false}, {"b", {4}, "", false}}}, 1);
  const std::vector<std::vector<float>> sent_ = {std::vector<float>(8, 0.5f),
                                                 std::vector<float>(4, 2.0f)};
  std::vector<float> a_ = std::vector<float>(8);
  std::vector<float> b_ = std::vector<float>(4);
  const std::vector<MutableTensorView> bound_ = {absl::MakeSpan(a_),
                                                 absl::MakeSpan(b_)};
  PullArrivals arrivals_{&router_};
  ParameterSink sink_{
      &router_, {bound_}, {kEpoch, kVersion, DType::kF32}, &arrivals_};
};

TEST_F(ParameterSinkTest, FramesGoWhereTheyBelong) {
  EXPECT_TRUE(sink_.Land(0, FrameOf(1)).ok());
  EXPECT_TRUE(absl::IsInternal(sink_.CheckComplete(0)));
  EXPECT_TRUE(sink_.Land(0, FrameOf(0)).ok());
  EXPECT_TRUE(sink_.CheckComplete(0).ok());
  EXPECT_EQ(a_, sent_[0]);
  EXPECT_EQ(b_, sent_[1]);
  EXPECT_TRUE(absl::IsInternal(sink_.Land(0, FrameOf(0))));
}

TEST_F(ParameterSinkTest, ADamagedSliceHasNotLanded) {
  EXPECT_TRUE(absl::IsDataLoss(sink_.Land(0, FrameOf(0, /*damaged=*/true))));
  EXPECT_TRUE(sink_.Land(0, FrameOf(1)).ok());
  EXPECT_FALSE(arrivals_.landed(0));
  EXPECT_TRUE(absl::IsInternal(sink_.CheckComplete(0)));
  EXPECT_TRUE(sink_.Land(0, FrameOf(0)).ok());
  EXPECT_TRUE(sink_.CheckComplete(0).ok());
}

}  // namespace
}  // namespace agg
