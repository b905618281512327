#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

using testing::ElementsAre;

absl::Status UpdateOf(ClosedRound* round, ShardCompute* compute,
                      const StepPlan& step, int* num_revoked) {
  const absl::Status taken = round->TakeMemory(compute, num_revoked);
  return taken.ok() ? round->Update(compute, step) : taken;
}

// One row, {3, 4} in slice 0 and {2} in slice 1.
class ClosedRoundTest : public testing::Test {
 protected:
  ClosedRoundTest() {
    Manifest manifest;
    manifest.tensors = {{"a", {2}, "", false}, {"b", {1}, "", false}};
    compute_ = *ShardCompute::Create(ShardOptions(), backend_.get(), manifest);
    compute_->rows()->Add(0, *compute_->AllocateRow(compute_->PlanWith(1)));
    EXPECT_TRUE(compute_->TakeSeed().ok());
    Write(PushKind::kGradient, 0, {3.0f, 4.0f});
    Write(PushKind::kGradient, 1, {2.0f});
    Write(PushKind::kSeed, 0, {0.0f, 0.0f});
    Write(PushKind::kSeed, 1, {0.0f});
    EXPECT_TRUE(compute_->LoadSeed(compute_->seed().get()).ok());
    compute_->store()->Publish(0, compute_->seed());
    compute_->ReleaseSeed();
    step_.coefficients = {1.0};
    step_.learning_rate = 0.5;
  }

  void Write(PushKind kind, int32_t slice, const std::vector<float>& values) {
    std::memcpy(compute_->LandingPlace(kind, 0, 10, slice).elements,
                values.data(), values.size() * sizeof(float));
  }

  const std::unique_ptr<Backend> backend_ = *MakeBackend("cpu", {1});
  std::unique_ptr<ShardCompute> compute_;
  StepPlan step_;
  ClosedRound round_{{{0, 10}}, {7}, {}};
};

TEST_F(ClosedRoundTest, ARoundThatIsNotClosedHasNothing) {
  const ClosedRound open;
  EXPECT_FALSE(open.close_result().has_value());
  EXPECT_FALSE(open.has_grams());
  EXPECT_EQ(open.updated(), nullptr);
}

TEST_F(ClosedRoundTest, IncompleteRowsAreTheResultOfItsClose) {
  const ClosedRound refused({{0, 10}, {2, 30}}, {}, {2});
  ASSERT_TRUE(refused.close_result().has_value());
  EXPECT_THAT(refused.close_result()->incomplete_ranks, ElementsAre(2));
  EXPECT_FALSE(refused.has_grams());
}

TEST_F(ClosedRoundTest, ComputesTheGramsThatAreNotThere) {
  std::vector<std::optional<SliceGram>> early(2);
  early[1] = SliceGram{1, {42.0}, {}};
  EXPECT_FALSE(round_.has_grams());
  const auto result = round_.Close(compute_.get(), std::move(early));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->grams.size(), 2u);
  EXPECT_THAT(result->grams[0].hi, ElementsAre(25.0));
  EXPECT_THAT(result->grams[1].hi, ElementsAre(42.0));
  EXPECT_TRUE(round_.has_grams());
  EXPECT_EQ(round_.close_result()->grams.size(), 2u);
}

TEST_F(ClosedRoundTest, CompensatesTheTensorsThatAreAskedFor) {
  const auto second = round_.CompensatedGram(compute_.get(), {1});
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->grams.size(), 1u);
  EXPECT_EQ(second->grams[0].slice, 1);
  EXPECT_THAT(second->grams[0].hi, ElementsAre(4.0));
  const auto first = round_.CompensatedGram(compute_.get(), {0});
  EXPECT_THAT(first->grams[0].hi, ElementsAre(25.0));
}

TEST_F(ClosedRoundTest, ARepeatGivesTheSameThoughTheRowChanges) {
  ASSERT_TRUE(round_.CompensatedGram(compute_.get(), {0}).ok());
  Write(PushKind::kGradient, 0, {1.0f, 1.0f});
  const auto repeated = round_.CompensatedGram(compute_.get(), {0});
  EXPECT_THAT(repeated->grams[0].hi, ElementsAre(25.0));
}

TEST_F(ClosedRoundTest, StepsOnce) {
  int num_revoked = -1;
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(num_revoked, 0);
  const std::shared_ptr<const Snapshot> updated = round_.updated();
  ASSERT_NE(updated, nullptr);
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.updated(), updated);
  float value;
  std::memcpy(&value, updated->data(DType::kF32), sizeof(value));
  EXPECT_EQ(value, -1.5f);  // 0 - 0.5 * 3
}

TEST(NarrowedRoundTest, CountsWhatItsPullDtypeCannotHold) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {2}, "", false}, {"b", {3}, "", false}};
  ShardOptions options;
  options.pull_dtype = DType::kF16;
  const auto compute = *ShardCompute::Create(options, backend.get(), manifest);
  compute->rows()->Add(0, *compute->AllocateRow(compute->PlanWith(1)));
  const auto write = [&](PushKind kind, int32_t slice,
                         const std::vector<float>& values) {
    std::memcpy(compute->LandingPlace(kind, 0, 10, slice).elements,
                values.data(), values.size() * sizeof(float));
  };
  ASSERT_TRUE(compute->TakeSeed().ok());
  write(PushKind::kSeed, 0, {0.0f, 0.0f});
  write(PushKind::kSeed, 1, {0.0f, 0.0f, 0.0f});
  ASSERT_TRUE(compute->LoadSeed(compute->seed().get()).ok());
  compute->store()->Publish(0, compute->seed());
  compute->ReleaseSeed();
  write(PushKind::kGradient, 0, {-65504.0f, 1e-9f});
  write(PushKind::kGradient, 1, {-320000.0f, 70000.0f, 0.0f});
  StepPlan step;
  step.coefficients = {1.0};
  step.learning_rate = 1.0;
  ClosedRound round({{0, 10}}, {7}, {});
  int num_revoked = 0;
  ASSERT_TRUE(UpdateOf(&round, compute.get(), step, &num_revoked).ok());
  EXPECT_EQ(round.not_finite_slice(), -1);  // as float32
  EXPECT_EQ(compute->narrowing().slice, 1);
  EXPECT_EQ(compute->narrowing().num_infinite, 2u);
  EXPECT_EQ(compute->narrowing().num_compared, 4u);
  EXPECT_EQ(compute->narrowing().num_vanished, 1u);
  // What the next round loses is its own.
  compute->store()->Publish(1, round.updated());
  write(PushKind::kGradient, 1, {320000.0f, -70000.0f, 1.0f});
  write(PushKind::kGradient, 0, {65504.0f, -1e-9f});
  round = ClosedRound({{0, 10}}, {7}, {});
  ASSERT_TRUE(UpdateOf(&round, compute.get(), step, &num_revoked).ok());
  EXPECT_EQ(compute->narrowing().slice, -1);
  EXPECT_EQ(compute->narrowing().num_infinite, 0u);
  EXPECT_EQ(compute->narrowing().num_vanished, 0u);
  EXPECT_EQ(compute->narrowing().num_compared, 1u);
}

TEST_F(ClosedRoundTest, NamesTheFirstSliceThatIsNotFinite) {
  Write(PushKind::kGradient, 0, {3.0f, 0.0f});
  Write(PushKind::kGradient, 1, {3e38f});
  step_.learning_rate = 1e30;
  step_.coefficients = {1e-30};
  int num_revoked = 0;
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.not_finite_slice(), -1);
  round_ = ClosedRound({{0, 10}}, {7}, {});
  step_.coefficients = {1.0};
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.not_finite_slice(), 1);
  // A repeat says the same, although it computes nothing.
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.not_finite_slice(), 1);
}

// A step may name the tensors that it is about, in any number.
TEST_F(ClosedRoundTest, StepsWithTheCoefficientsOfItsOwnTensors) {
  step_.per_tensor = true;
  step_.tensors = {1};
  int num_revoked = 0;
  const absl::Status status =
      UpdateOf(&round_, compute_.get(), step_, &num_revoked);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("step lacks tensor 0"));
  step_.tensors = {0, 1};
  step_.coefficients = {1.0, 2.0};
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  const float* values =
      reinterpret_cast<const float*>(round_.updated()->data(DType::kF32));
  EXPECT_EQ(values[0], -1.5f);  // 0 - 0.5 * 1 * 3
  EXPECT_EQ(values[compute_->layout()->ranges[1].begin], -2.0f);
}

TEST_F(ClosedRoundTest, AnErrorIsNotKept) {
  StepPlan bad = step_;
  bad.coefficients.clear();
  int num_revoked = 0;
  EXPECT_FALSE(UpdateOf(&round_, compute_.get(), bad, &num_revoked).ok());
  EXPECT_EQ(round_.updated(), nullptr);
  EXPECT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
}

}  // namespace
}  // namespace agg
