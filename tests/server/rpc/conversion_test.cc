// Plain values to messages and back: nothing is lost on the way.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/call_validation.h"
#include "server/rpc/job_conversion.h"
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

Phase FullPhase(PhaseKind kind) {
  Phase phase;
  phase.kind = kind;
  phase.epoch = 1;
  phase.round = 2;
  return phase;
}

TEST(PhaseConversionTest, EveryPhase) {
  Phase phase = FullPhase(PhaseKind::kClose);
  phase.rows = {{0, 10}, {3, 13, 2}};
  absl::StatusOr<Phase> back = FromProto(ToProto(phase));
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
  back = FromProto(ToProto(phase));
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
    back = FromProto(ToProto(phase));
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
  back = FromProto(ToProto(phase));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->publish.version, 4u);
  EXPECT_TRUE(back->publish.unchanged);
  EXPECT_TRUE(back->publish.seed);
  EXPECT_EQ(back->publish.seed_session, 77u);

  back = FromProto(ToProto(FullPhase(PhaseKind::kAbandon)));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, PhaseKind::kAbandon);

  EXPECT_EQ(FromProto(v1::PhaseRequest()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PhaseConversionTest, LargeResultsTravelInSeveralMessages) {
  PhaseResult result;
  for (int slice = 0; slice < 40; ++slice) {
    result.grams.push_back(
        {slice, std::vector<double>(20000, slice + 0.5), {}});
  }
  result.grams[7].lo = {1.0, -1.0};
  result.norms.push_back({3, 1.5, 2.5});
  result.seconds = 0.125;
  result.incomplete_ranks = {2, 511};
  result.not_finite_slice = 0;
  const std::vector<v1::PhaseReply> replies = ToProto(result);
  EXPECT_GE(replies.size(), 3u);
  PhaseResult back;
  for (const v1::PhaseReply& reply : replies) {
    EXPECT_LT(reply.ByteSizeLong(), 4u << 20);
    AppendReply(reply, &back);
  }
  EXPECT_THAT(back.incomplete_ranks, ElementsAre(2, 511));
  EXPECT_EQ(back.not_finite_slice, 0);
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
  const std::vector<v1::PhaseReply> replies = ToProto(PhaseResult());
  ASSERT_EQ(replies.size(), 1u);
  PhaseResult back;
  AppendReply(replies[0], &back);
  EXPECT_EQ(back.not_finite_slice, -1);
}

TEST(PhaseConversionTest, SessionChange) {
  SessionChange change;
  change.session = 1;
  change.rank = 2;
  change.replaces = 3;
  change.keep_row = true;
  change.remove = true;
  change.seed_role = true;
  change.reason = "superseded";
  change.finished = true;
  const v1::SetSessionRequest request = ToProto(5, change);
  EXPECT_EQ(request.epoch(), 5u);
  const SessionChange back = FromProto(request);
  EXPECT_EQ(back.session, 1u);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.replaces, 3u);
  EXPECT_TRUE(back.keep_row && back.remove && back.seed_role);
  EXPECT_TRUE(back.finished);
  EXPECT_EQ(back.reason, "superseded");
}

}  // namespace
}  // namespace agg
