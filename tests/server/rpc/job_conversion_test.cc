// Plain values to messages and back: nothing is lost on the way.
#include "server/rpc/job_conversion.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_types.h"
#include "server/rpc/phase_conversion.h"

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

Phase FullPhase(PhaseKind kind) {
  Phase phase;
  phase.kind = kind;
  phase.epoch = 1;
  phase.round = 2;
  return phase;
}

// What the other side makes of the messages; their number goes to
// *num_messages.
absl::StatusOr<Phase> RoundTrip(const Phase& phase,
                                int64_t max_bytes = kMaxPhaseMessageBytes,
                                int* num_messages = nullptr) {
  PhaseRequests requests(phase, max_bytes);
  v1::PhaseRequest request;
  EXPECT_TRUE(requests.Next(&request));
  PhaseAssembly back;
  absl::Status status = back.Add(request);
  int count = 1;
  while (status.ok() && request.more()) {
    EXPECT_TRUE(requests.Next(&request));
    EXPECT_LE(static_cast<int64_t>(request.ByteSizeLong()), max_bytes + 100);
    status = back.Add(request);
    ++count;
  }
  EXPECT_FALSE(requests.Next(&request));
  if (num_messages != nullptr) *num_messages = count;
  if (!status.ok()) return status;
  return back.Take();
}

std::vector<v1::PhaseReply> AllReplies(const PhaseResult& result) {
  PhaseReplies replies(result);
  std::vector<v1::PhaseReply> messages(1);
  while (replies.Next(&messages.back())) messages.emplace_back();
  messages.pop_back();
  return messages;
}

// An update of that many tensors, each of its numbers another one.
Phase LargeStep(int num_tensors, int num_rows) {
  Phase phase = FullPhase(PhaseKind::kUpdate);
  phase.step.per_tensor = true;
  phase.step.excluded_ranks = {5};
  phase.step.learning_rate = 0.25;
  phase.step.step = 9;
  for (int t = 0; t < num_tensors; ++t) {
    phase.step.tensors.push_back(3 * t);
    phase.step.trust.push_back(static_cast<float>(t) + 0.5f);
    for (int row = 0; row < num_rows; ++row) {
      phase.step.coefficients.push_back(t + row / 1024.0);
    }
  }
  return phase;
}

TEST(PhaseConversionTest, LargeStepsTravelInSeveralMessages) {
  for (const int64_t max_bytes : {8, 24, 1000, 1 << 20}) {
    SCOPED_TRACE(max_bytes);
    const Phase phase = LargeStep(50, 7);
    int num_messages = 0;
    const auto back = RoundTrip(phase, max_bytes, &num_messages);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(num_messages > 1, max_bytes < 50 * 9 * 8);
    EXPECT_EQ(back->kind, PhaseKind::kUpdate);
    EXPECT_EQ(back->epoch, phase.epoch);
    EXPECT_EQ(back->step.coefficients, phase.step.coefficients);
    EXPECT_EQ(back->step.tensors, phase.step.tensors);
    EXPECT_EQ(back->step.trust, phase.step.trust);
    EXPECT_THAT(back->step.excluded_ranks, ElementsAre(5));
    EXPECT_EQ(back->step.learning_rate, 0.25);
    EXPECT_EQ(back->step.step, 9);
  }
}

// 2,030 tensors were the most that one message held.
TEST(PhaseConversionTest, AnyNumberOfTensorsIsSentToAnyNumberOfWorkers) {
  JobInfo job;
  job.max_workers = 512;
  job.shards = {"a:1", "b:1"};
  v1::Manifest manifest;
  for (int t = 0; t < 5000; ++t) {
    manifest.add_tensors()->set_name(absl::StrCat("tensor", t));
  }
  EXPECT_EQ(
      CheckMessageSize(static_cast<int64_t>(manifest.ByteSizeLong()), job),
      absl::OkStatus());
  const Phase phase = LargeStep(5000, 512);
  int num_messages = 0;
  const auto back = RoundTrip(phase, kMaxPhaseMessageBytes, &num_messages);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(num_messages, 7);
  EXPECT_EQ(back->step.coefficients, phase.step.coefficients);
}

TEST(PhaseConversionTest, AManifestMustStillFitAMessage) {
  JobInfo job;
  v1::Manifest manifest;
  for (int t = 0; t < 20000; ++t) {
    manifest.add_tensors()->set_name(std::string(500, 'x'));
  }
  const auto bytes = static_cast<int64_t>(manifest.ByteSizeLong());
  EXPECT_EQ(CheckMessageSize(bytes, job), absl::OkStatus());  // one shard
  job.shards = {"a:1", "b:1"};
  const absl::Status status = CheckMessageSize(bytes, job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      testing::HasSubstr(absl::StrCat("manifest is ", bytes, " bytes")));
}

TEST(PhaseConversionTest, ALaterMessageIsOfTheSamePhase) {
  const Phase phase = LargeStep(2, 1);
  PhaseRequests requests(phase, 8);
  v1::PhaseRequest first, second;
  ASSERT_TRUE(requests.Next(&first));
  ASSERT_TRUE(requests.Next(&second));
  const auto refuses = [&](const v1::PhaseRequest& request) {
    PhaseAssembly back;
    EXPECT_EQ(back.Add(first), absl::OkStatus());
    return back.Add(request).code() == absl::StatusCode::kInvalidArgument;
  };
  v1::PhaseRequest other = second;
  other.mutable_norms();
  EXPECT_TRUE(refuses(other));
  other = second;
  other.set_round(second.round() + 1);
  EXPECT_TRUE(refuses(other));
  other = second;
  other.set_epoch(second.epoch() + 1);
  EXPECT_TRUE(refuses(other));
  EXPECT_FALSE(refuses(second));
}

TEST(PhaseConversionTest, EveryPhase) {
  Phase phase = FullPhase(PhaseKind::kClose);
  phase.rows = {{0, 10}, {3, 13, 2}};
  absl::StatusOr<Phase> back = RoundTrip(phase);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, PhaseKind::kClose);
  EXPECT_EQ(back->epoch, 1u);
  EXPECT_EQ(back->round, 2u);
  ASSERT_EQ(back->rows.size(), 2u);
  EXPECT_EQ(back->rows[1].session, 13u);
  EXPECT_EQ(back->rows[0].attempt, 0u);
  EXPECT_EQ(back->rows[1].attempt, 2u);

  phase = FullPhase(PhaseKind::kCompensatedGram);
  phase.tensors = {1, 5};
  back = RoundTrip(phase);
  ASSERT_TRUE(back.ok());
  EXPECT_THAT(back->tensors, ElementsAre(1, 5));

  for (PhaseKind kind : {PhaseKind::kNorms, PhaseKind::kUpdate}) {
    phase = FullPhase(kind);
    phase.step.per_tensor = true;
    phase.step.coefficients = {0.25, 0.1};
    phase.step.excluded_ranks = {2};
    phase.step.learning_rate = 0.3;
    phase.step.step = 9;
    phase.step.trust = {1.0f, 0.5f};
    back = RoundTrip(phase);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->kind, kind);
    EXPECT_TRUE(back->step.per_tensor);
    EXPECT_THAT(back->step.coefficients, ElementsAre(0.25, 0.1));
    EXPECT_THAT(back->step.excluded_ranks, ElementsAre(2));
    EXPECT_EQ(back->step.learning_rate, 0.3);
    EXPECT_EQ(back->step.step, 9);
    EXPECT_THAT(back->step.trust, ElementsAre(1.0f, 0.5f));
  }

  phase = FullPhase(PhaseKind::kPublish);
  phase.publish = {4, true, true, 77};
  back = RoundTrip(phase);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->publish.version, 4u);
  EXPECT_TRUE(back->publish.unchanged);
  EXPECT_TRUE(back->publish.seed);
  EXPECT_EQ(back->publish.seed_session, 77u);

  back = RoundTrip(FullPhase(PhaseKind::kAbandon));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, PhaseKind::kAbandon);

  EXPECT_EQ(PhaseAssembly().Add(v1::PhaseRequest()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PhaseConversionTest, LargeResultsTravelInSeveralMessages) {
  PhaseResult result;
  for (int slice = 0; slice < 40; ++slice) {
    result.grams.push_back(
        {slice, std::vector<double>(20000, slice + 0.5),
         slice == 7 ? std::vector<double>{1.0, -1.0} : std::vector<double>()});
  }
  result.norms.push_back({3, 1.5, 2.5});
  result.seconds = 0.125;
  result.incomplete_ranks = {2, 511};
  result.not_finite_slice = 0;
  result.narrowing = {0, 5, 7, 3};
  const std::vector<v1::PhaseReply> replies = AllReplies(result);
  EXPECT_GE(replies.size(), 3u);
  PhaseResult back;
  for (const v1::PhaseReply& reply : replies) {
    EXPECT_LT(reply.ByteSizeLong(), 4u << 20);
    AppendReply(
        reply, [&](SliceGram gram) { back.grams.push_back(std::move(gram)); },
        &back);
  }
  EXPECT_THAT(back.incomplete_ranks, ElementsAre(2, 511));
  EXPECT_EQ(back.not_finite_slice, 0);
  EXPECT_EQ(back.narrowing.slice, 0);
  EXPECT_EQ(back.narrowing.num_infinite, 5u);
  EXPECT_EQ(back.narrowing.num_compared, 7u);
  EXPECT_EQ(back.narrowing.num_vanished, 3u);
  ASSERT_EQ(back.grams.size(), 40u);
  for (int slice = 0; slice < 40; ++slice) {
    EXPECT_EQ(back.grams[slice].slice, slice);
    EXPECT_EQ(back.grams[slice].hi, result.grams[slice].hi);
    EXPECT_EQ(back.grams[slice].lo, result.grams[slice].lo);
  }
  ASSERT_EQ(back.norms.size(), 1u);
  EXPECT_EQ(back.norms[0].update_norm_squared, 2.5);
  EXPECT_EQ(back.seconds, 0.125);
}

TEST(PhaseConversionTest, AnEmptyResultIsOneMessage) {
  const std::vector<v1::PhaseReply> replies = AllReplies(PhaseResult());
  ASSERT_EQ(replies.size(), 1u);
  PhaseResult back;
  AppendReply(replies[0], nullptr, &back);
  EXPECT_EQ(back.not_finite_slice, -1);
  EXPECT_EQ(back.narrowing.slice, -1);
}

TEST(PhaseConversionTest, SessionChange) {
  Phase phase = FullPhase(PhaseKind::kSetSession);
  SessionChange& change = phase.session;
  change.session = 1;
  change.rank = 2;
  change.replaces = 3;
  change.keep_row = true;
  change.remove = true;
  change.seed_role = true;
  change.reason = "superseded";
  change.finished = true;
  change.first_round = 12;
  change.client = "host:1";
  const absl::StatusOr<Phase> arrived = RoundTrip(phase);
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_EQ(arrived->epoch, 1u);
  const SessionChange& back = arrived->session;
  EXPECT_EQ(back.session, 1u);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.replaces, 3u);
  EXPECT_TRUE(back.keep_row && back.remove && back.seed_role);
  EXPECT_TRUE(back.finished);
  EXPECT_EQ(back.first_round, 12u);
  EXPECT_EQ(back.client, "host:1");
  EXPECT_EQ(back.reason, "superseded");
}

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
