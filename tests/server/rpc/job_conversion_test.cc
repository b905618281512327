// Plain values to messages and back: nothing is lost on the way.
#include "server/rpc/job_conversion.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JobConversionTest, CommitDefaults) {
  const absl::StatusOr<CommitCall> call = FromProto(v1::CommitRequest());
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->info.row.examples, 1);
  EXPECT_EQ(call->info.row.accumulation, 1);
  EXPECT_EQ(call->info.row.loss_scale, 1.0);
  EXPECT_FALSE(call->info.row.micro_norm_squared_sum.has_value());
  EXPECT_FALSE(call->info.loss.has_value());
}

TEST(JobConversionTest, CommitValues) {
  v1::CommitRequest request;
  request.set_epoch(1);
  request.set_session(2);
  request.set_round(3);
  request.set_kind(v1::SEED);
  request.set_examples(32);
  request.set_accumulation(4);
  request.set_micro_norm_squared_sum(2.5);
  request.set_loss(0.0);
  request.set_loss_scale(1024.0);
  absl::StatusOr<CommitCall> call = FromProto(request);
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->kind, PushKind::kSeed);
  EXPECT_EQ(call->info.row.examples, 32);
  EXPECT_EQ(call->info.row.accumulation, 4);
  EXPECT_EQ(call->info.row.micro_norm_squared_sum, 2.5);
  EXPECT_EQ(call->info.loss, 0.0);
  EXPECT_EQ(call->info.row.loss_scale, 1024.0);
  // A sum that has overflowed counts as not sent.
  request.set_micro_norm_squared_sum(std::numeric_limits<double>::infinity());
  call = FromProto(request);
  ASSERT_TRUE(call.ok());
  EXPECT_FALSE(call->info.row.micro_norm_squared_sum.has_value());
  // One that is no sum of squares is for ValidateCommit to refuse.
  request.set_micro_norm_squared_sum(-1.0);
  call = FromProto(request);
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->info.row.micro_norm_squared_sum, -1.0);
}

TEST(JobConversionTest, BadValuesAreRefusedByField) {
  const auto error = [](auto set) {
    v1::CommitRequest request;
    set(&request);
    const absl::StatusOr<CommitCall> call = FromProto(request);
    return std::string(
        (call.ok() ? ValidateCommit(call->info) : call.status()).message());
  };
  EXPECT_THAT(error([](auto* r) { r->set_examples(-1); }),
              HasSubstr("commit.examples is -1; allowed: "));
  EXPECT_THAT(error([](auto* r) { r->set_accumulation(-2); }),
              HasSubstr("commit.accumulation is -2; allowed: "));
  EXPECT_THAT(error([](auto* r) { r->set_loss_scale(std::nan("")); }),
              HasSubstr("commit.loss_scale is nan; allowed: "));
  EXPECT_THAT(error([](auto* r) { r->set_kind(v1::PushKind(9)); }),
              HasSubstr("commit.kind is 9; allowed: "));
}

TEST(JobConversionTest, AJoinSaysWhatItResumes) {
  v1::JoinParts request;
  request.set_rank(3);
  request.set_client("host:1");
  request.set_resume_session(5);
  request.set_resume_version(6);
  request.set_resume_made(7);
  const JoinCall call = FromProto(request);
  EXPECT_EQ(call.rank, 3);
  EXPECT_EQ(call.client, "host:1");
  EXPECT_EQ(call.resume_session, 5u);
  EXPECT_EQ(call.resume_version, 6u);
  EXPECT_EQ(call.resume_made, 7u);
}

TEST(JobConversionTest, AJoinsAnswerSaysWhatWasLost) {
  JoinResult result;
  result.made = 9;
  result.rewound = true;
  result.shard_lives = {11, 12};
  const v1::JoinReply reply = ToProto(result, JobInfo());
  EXPECT_EQ(reply.made(), 9u);
  EXPECT_TRUE(reply.rewound());
  EXPECT_THAT(reply.shard_lives(), ElementsAre(11u, 12u));
  EXPECT_TRUE(reply.local_sockets().empty());
}

TEST(JobConversionTest, AJoinsAnswerNamesTheProcesssOwnSocket) {
  JoinResult result;
  result.local_sockets = {"", "agg-2", ""};
  JobInfo job;
  job.local_socket = "agg-1";
  EXPECT_THAT(ToProto(result, job).local_sockets(),
              ElementsAre("agg-1", "agg-2", ""));
}

TEST(JobConversionTest, StatusOfRecoveriesAndCheckpoints) {
  JobStatus status;
  status.history = 3;
  status.recovering = "waits for shard 1";
  status.replicated = true;
  const v1::StatusReply none = ToProto(status, std::nullopt, JobInfo());
  EXPECT_EQ(none.history(), 3u);
  EXPECT_EQ(none.recovering(), "waits for shard 1");
  EXPECT_TRUE(none.replicated());
  EXPECT_FALSE(none.has_checkpoint());
  status.checkpoint = {
      true, 8, 7, absl::Seconds(90), true, "the disk is full", 4, 5,
      6,    2, 1, "goes on from 6"};
  const v1::CheckpointStatus checkpoint =
      ToProto(status, std::nullopt, JobInfo()).checkpoint();
  EXPECT_EQ(checkpoint.version(), 8u);
  EXPECT_EQ(checkpoint.made(), 7u);
  EXPECT_EQ(checkpoint.age_seconds(), 90.0);
  EXPECT_TRUE(checkpoint.writing());
  EXPECT_EQ(checkpoint.last_error(), "the disk is full");
  EXPECT_EQ(checkpoint.restore(), "goes on from 6");
  EXPECT_EQ(checkpoint.num_sealed(), 4u);
  EXPECT_EQ(checkpoint.num_failed(), 5u);
  EXPECT_EQ(checkpoint.restored_version(), 2u);
  EXPECT_EQ(checkpoint.restored_made(), 1u);
}

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
