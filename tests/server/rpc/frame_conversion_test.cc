#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/job_conversion.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::FrameMeta GoodMeta() {
  v1::FrameMeta meta;
  meta.set_epoch(7);
  meta.set_session(11);
  meta.set_round(3);
  meta.set_dtype(v1::BF16);
  meta.add_slices(2);
  meta.add_crc32c(99);
  meta.add_absent_slices(4);
  meta.set_attempt(5);
  return meta;
}

TEST(FrameConversionTest, TakesEveryField) {
  const absl::StatusOr<FrameHeader> header = FromProto(GoodMeta(), 4);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->session, 11u);
  EXPECT_EQ(header->attempt, 5u);
  EXPECT_EQ(header->kind, PushKind::kGradient);
  EXPECT_EQ(header->dtype, DType::kBF16);
  EXPECT_THAT(header->slices, ElementsAre(2));
  EXPECT_THAT(header->crc32c, ElementsAre(99));
  EXPECT_THAT(header->absent_slices, ElementsAre(4));
}

TEST(FrameConversionTest, ValuesOfNoMeaningAreRefused) {
  v1::FrameMeta meta = GoodMeta();
  const absl::StatusOr<FrameHeader> header = FromProto(meta, 4);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->epoch, 7u);
  EXPECT_EQ(header->round, 3u);
  EXPECT_EQ(header->payload_bytes, 4);
  for (int dtype : {0, 5, 257, -1}) {
    v1::FrameMeta bad = meta;
    bad.set_dtype(static_cast<v1::DType>(dtype));
    EXPECT_THAT(std::string(FromProto(bad, 4).status().message()),
                HasSubstr("meta.dtype is "));
  }
  meta.set_kind(static_cast<v1::PushKind>(2));
  EXPECT_THAT(std::string(FromProto(meta, 4).status().message()),
              HasSubstr("meta.kind is 2; allowed: GRADIENT (0)"));
}

TEST(FrameConversionTest, SessionZeroIsRefused) {
  v1::FrameMeta meta = GoodMeta();
  meta.set_session(0);
  const absl::Status status = FromProto(meta, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("meta.session is 0; allowed: the session of a "
                        "JoinReply"));
}

TEST(FrameConversionTest, AnAcknowledgementNamesThePush) {
  FrameHeader header;
  header.epoch = 7;
  header.round = 3;
  header.kind = PushKind::kSeed;
  header.attempt = 5;
  const v1::PushAck ack = MakePushAck(header, {true, true});
  EXPECT_EQ(ack.attempt(), 5u);
  EXPECT_EQ(ack.epoch(), 7u);
  EXPECT_EQ(ack.round(), 3u);
  EXPECT_EQ(ack.kind(), v1::SEED);
  EXPECT_TRUE(ack.closed());
}

}  // namespace
}  // namespace agg
