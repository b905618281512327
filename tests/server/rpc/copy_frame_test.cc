#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/copy_streams.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CopyHeader kHeader{7, 1, {5, 6}};

CopySlice Slice(CopyArray array, int32_t slice,
                const std::vector<float>& values) {
  return {array, slice, absl::MakeConstSpan(values)};
}

v1::CopyFrame Parsed(CopyFrameBuilder* builder) {
  grpc::ByteBuffer buffer = builder->Take();
  v1::CopyFrame frame;
  EXPECT_EQ(ParseCopyFrame(&buffer, &frame), absl::OkStatus());
  return frame;
}

// The slices of a frame, with copies of their values.
absl::Status Read(const v1::CopyFrame& frame,
                  std::vector<std::pair<int32_t, std::vector<float>>>* out) {
  return ForEachSlice(frame, [&](const CopySlice& slice) {
    EXPECT_EQ(slice.array, CopyArray::kState0);
    out->push_back({slice.slice, {slice.values.begin(), slice.values.end()}});
    return absl::OkStatus();
  });
}

v1::CopyFrame TwoSlices() {
  CopyFrameBuilder builder(kHeader);
  builder.Add(Slice(CopyArray::kState0, 3, {1.0f, 2.0f, 3.0f}));
  builder.Add(Slice(CopyArray::kState0, 9, {4.0f}));
  return Parsed(&builder);
}

TEST(CopyFrameTest, SlicesOfAnySizesShareAFrame) {
  const v1::CopyFrame frame = TwoSlices();
  CopyHeader header;
  ASSERT_EQ(ReadHeader(frame, &header), absl::OkStatus());
  EXPECT_EQ(header.epoch, 7u);
  EXPECT_EQ(header.part, 1);
  EXPECT_EQ(header.id, (VersionId{5, 6}));
  std::vector<std::pair<int32_t, std::vector<float>>> slices;
  ASSERT_EQ(Read(frame, &slices), absl::OkStatus());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].first, 3);
  EXPECT_THAT(slices[0].second, ElementsAre(1.0f, 2.0f, 3.0f));
  EXPECT_EQ(slices[1].first, 9);
  EXPECT_THAT(slices[1].second, ElementsAre(4.0f));
}

TEST(CopyFrameTest, TheFirstFrameAloneSaysWhoseBytesFollow) {
  CopyFrameBuilder builder(kHeader);
  EXPECT_TRUE(builder.empty());
  EXPECT_EQ(Parsed(&builder).epoch(), 7u);
  const std::vector<float> values = {1.0f};
  builder.Add(Slice(CopyArray::kState1, 0, values));
  EXPECT_FALSE(builder.empty());
  const v1::CopyFrame second = Parsed(&builder);
  EXPECT_EQ(second.epoch(), 0u);
  EXPECT_EQ(second.array(), v1::CopyFrame::STATE1);
  EXPECT_FALSE(second.last());
  EXPECT_TRUE(builder.empty());
  grpc::ByteBuffer buffer = builder.Take(/*last=*/true);
  v1::CopyFrame last;
  ASSERT_EQ(ParseCopyFrame(&buffer, &last), absl::OkStatus());
  EXPECT_TRUE(last.last());
}

TEST(CopyFrameTest, AFrameHasOneArrayAndABoundedSize) {
  const std::vector<float> half(512 << 10, 0.5f);
  const std::vector<float> one = {1.0f};
  CopyFrameBuilder builder(kHeader);
  builder.Add(Slice(CopyArray::kCombined, 0, half));
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kParameters, 1, one)));
  EXPECT_TRUE(builder.Fits(Slice(CopyArray::kCombined, 1, half)));
  builder.Add(Slice(CopyArray::kCombined, 1, half));  // 4 MiB
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kCombined, 2, one)));
  builder.Take();
  for (int i = 0; i < 1024; ++i) {
    ASSERT_TRUE(builder.Fits(Slice(CopyArray::kCombined, i, one))) << i;
    builder.Add(Slice(CopyArray::kCombined, i, one));
  }
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kCombined, 1024, one)));
  builder.Take();
  builder.SetRecord("text");
  EXPECT_FALSE(builder.Fits(Slice(CopyArray::kCombined, 0, one)));
  EXPECT_EQ(Parsed(&builder).record(), "text");
}

TEST(CopyFrameTest, ADamagedSliceIsNamed) {
  v1::CopyFrame frame = TwoSlices();
  (*frame.mutable_payload())[13] ^= 1;  // of the second slice
  std::vector<std::pair<int32_t, std::vector<float>>> slices;
  const absl::Status status = Read(frame, &slices);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("slice 9 arrived damaged"));
  EXPECT_EQ(slices.size(), 1u);
}

template <typename Change>
std::string Refusal(const Change& change) {
  v1::CopyFrame frame = TwoSlices();
  change(&frame);
  const absl::Status status =
      ForEachSlice(frame, [](const CopySlice&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CopyFrameTest, FieldsThatDoNotFitTogetherAreRefused) {
  EXPECT_THAT(Refusal([](auto* f) { f->add_slices(1); }),
              HasSubstr("a frame has 3 slices, 2 checksums and 2 sizes"));
  EXPECT_THAT(Refusal([](auto* f) { f->clear_crc32c(); }),
              HasSubstr("2 slices, 0 checksums"));
  EXPECT_THAT(Refusal([](auto* f) { f->set_elements(0, 4); }),
              HasSubstr("payload is 16 bytes; allowed: 20 bytes"));
  EXPECT_THAT(Refusal([](auto* f) { f->set_elements(0, 0xffffffff); }),
              HasSubstr("payload is 16 bytes; allowed: 17179869184 bytes"));
  EXPECT_THAT(Refusal([](auto* f) { f->set_slices(0, 0x80000000); }),
              HasSubstr("slices is 2147483648"));
  EXPECT_THAT(Refusal([](auto* f) {
                f->set_array(static_cast<v1::CopyFrame::Array>(9));
              }),
              HasSubstr("array is 9; allowed: COMBINED (0)"));
  v1::CopyFrame frame;
  frame.set_part(0x80000000);
  CopyHeader header;
  EXPECT_THAT(std::string(ReadHeader(frame, &header).message()),
              HasSubstr("part is 2147483648"));
}

TEST(CopyFrameTest, BytesThatAreNoMessageAreRefused) {
  const grpc::Slice bytes("\xff\xff\xff");
  grpc::ByteBuffer buffer(&bytes, 1);
  v1::FetchRequest request;
  EXPECT_FALSE(ParseFetchRequest(buffer, &request).ok());
  v1::CopyFrame frame;
  EXPECT_FALSE(ParseCopyFrame(&buffer, &frame).ok());
  request.set_part(3);
  v1::FetchRequest back;
  EXPECT_EQ(ParseFetchRequest(Serialize(request), &back), absl::OkStatus());
  EXPECT_EQ(back.part(), 3u);
}

}  // namespace
}  // namespace agg
