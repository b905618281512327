#include "server/ingest/frame.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;

// On two shards; slices: "w" 0 and 1, "s" 2, "opt" 3.
Manifest TestManifest() {
  Manifest manifest;
  manifest.tensors = {{"w", {kMaxSliceElements + 10}, "", false},
                      {"s", {}, "", false},
                      {"empty", {0}, "", false},
                      {"opt", {5}, "", true}};
  return manifest;
}

// Shard 1 has all but the large slice 0.
ShardLayout TestLayout() { return *MakeShardLayout(TestManifest(), 2, 1); }

FrameHeader GoodHeader() {
  FrameHeader header;
  header.slices = {1, 2};
  header.crc32c = {0, 0};
  header.absent_slices = {3};
  header.payload_bytes = 44;
  return header;
}

std::string Error(const std::function<void(FrameHeader*)>& change,
                  DType push_dtype = DType::kF32) {
  FrameHeader header = GoodHeader();
  change(&header);
  const absl::Status status = CheckFrame(header, TestLayout(), push_dtype);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(FrameCheckTest, AcceptsWhatFits) {
  EXPECT_EQ(CheckFrame(GoodHeader(), TestLayout(), DType::kF32),
            absl::OkStatus());
  FrameHeader half = GoodHeader();
  half.dtype = DType::kBF16;
  half.payload_bytes = 22;
  EXPECT_EQ(CheckFrame(half, TestLayout(), DType::kBF16), absl::OkStatus());
  FrameHeader absent_only = GoodHeader();
  absent_only.slices.clear();
  absent_only.crc32c.clear();
  absent_only.payload_bytes = 0;
  EXPECT_EQ(CheckFrame(absent_only, TestLayout(), DType::kF32),
            absl::OkStatus());
}

TEST(FrameCheckTest, Int8SlicesHaveAScaleForEachBlock) {
  FrameHeader header = GoodHeader();
  header.dtype = DType::kI8;
  header.payload_bytes = 11 + 2 * 4;  // two slices of less than a block
  EXPECT_EQ(CheckFrame(header, TestLayout(), DType::kI8), absl::OkStatus());
  const auto with_bytes = [](int64_t bytes) {
    return [bytes](FrameHeader* bad) {
      bad->dtype = DType::kI8;
      bad->payload_bytes = bytes;
    };
  };
  EXPECT_THAT(Error(with_bytes(11), DType::kI8),
              HasSubstr("payload has 11 bytes; its slices have 19"));
  EXPECT_THAT(Error(with_bytes(44), DType::kI8),
              HasSubstr("payload has 44 bytes; its slices have 19"));
  EXPECT_THAT(Error(with_bytes(19), DType::kF32),
              HasSubstr("meta.dtype is int8; allowed here: f32"));
}

TEST(FrameCheckTest, ASeedIsFloat32WhateverTheRowsAre) {
  FrameHeader seed = GoodHeader();
  seed.kind = PushKind::kSeed;
  seed.absent_slices.clear();
  EXPECT_EQ(CheckFrame(seed, TestLayout(), DType::kBF16), absl::OkStatus());
  seed.dtype = DType::kBF16;
  EXPECT_THAT(CheckFrame(seed, TestLayout(), DType::kBF16).message(),
              HasSubstr("meta.dtype is bf16; allowed here: f32"));
}

TEST(FrameCheckTest, NamesFieldValueAndWhatIsAllowed) {
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices.clear();
                h->crc32c.clear();
                h->absent_slices.clear();
              }),
              HasSubstr("meta.slices is empty; allowed: at least one"));
  EXPECT_THAT(
      Error([](FrameHeader* h) { h->crc32c.pop_back(); }),
      HasSubstr("meta.crc32c has 1 entries; allowed: one per slice, 2"));
  EXPECT_THAT(Error([](FrameHeader*) {}, DType::kF16),
              HasSubstr("meta.dtype is f32; allowed here: f16"));
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices = {1, 4};
              }),
              HasSubstr("meta.slices names slice 4; allowed: below 4"));
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices = {0, 2};
              }),
              HasSubstr("slice 0, which is on shard 0; this is shard 1"));
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices = {2, 1};
              }),
              HasSubstr("slice 1 after 2; allowed: ascending, once each"));
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices = {1, 1};
              }),
              HasSubstr("slice 1 after 1; allowed: ascending, once each"));
  EXPECT_THAT(Error([](FrameHeader* h) { h->payload_bytes = 43; }),
              HasSubstr("payload has 43 bytes; its slices have 44"));
}

TEST(FrameCheckTest, ChecksAbsentSlices) {
  EXPECT_THAT(Error([](FrameHeader* h) { h->absent_slices = {9}; }),
              HasSubstr("meta.absent_slices names slice 9; allowed: below 4"));
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices = {1};
                h->crc32c = {0};
                h->payload_bytes = 40;
                h->absent_slices = {2};
              }),
              HasSubstr("leaves out tensor \"s\"; allowed: tensors that the "
                        "manifest marks optional"));
  EXPECT_THAT(Error([](FrameHeader* h) {
                h->slices = {1, 3};
                h->payload_bytes = 60;
              }),
              HasSubstr("absent_slices names slice 3, which meta.slices"));
  EXPECT_THAT(Error([](FrameHeader* h) { h->kind = PushKind::kSeed; }),
              HasSubstr("meta.absent_slices is set in a seed"));
}

TEST(FrameCheckTest, RefusesMoreThanTheFrameCap) {
  const ShardLayout layout = *MakeShardLayout(TestManifest(), 1, 0);
  FrameHeader header;
  header.slices = {0};
  header.crc32c = {0};
  header.payload_bytes = kMaxFramePayloadBytes;
  EXPECT_EQ(CheckFrame(header, layout, DType::kF32), absl::OkStatus());
  header.slices = {0, 1};
  header.crc32c = {0, 0};
  header.payload_bytes += 40;
  EXPECT_THAT(CheckFrame(header, layout, DType::kF32).message(),
              HasSubstr("payload of 4194344 bytes; allowed: at most 4194304"));
}

}  // namespace
}  // namespace agg
