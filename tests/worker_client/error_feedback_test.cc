// Which row's residual is in the next one, for every way that a row can end.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "kernels/row_format.h"
#include "worker_client/row_encoding.h"

namespace agg {
namespace {

RowName Row(uint64_t round, uint32_t attempt = 0, uint64_t session = 7) {
  return RowName{false, round, session, attempt};
}

class ErrorFeedbackTest : public testing::Test {
 protected:
  // Pretends to encode: what is left of the tensor's elements is `left`.
  void Send(int32_t tensor, float left) {
    const Residual residual = feedback_.ResidualOf(tensor, 0, kSizes[tensor]);
    for (float& value : residual.after) value = left;
  }
  // What the row that has begun is encoded with.
  float Before(int32_t tensor) {
    return feedback_.ResidualOf(tensor, 0, kSizes[tensor]).before[0];
  }
  // Sends both tensors.
  void Push(const RowName& row, float left) {
    feedback_.Begin(row);
    Send(0, left);
    Send(1, left);
  }

  static constexpr int64_t kSizes[] = {3, 2};
  ErrorFeedback feedback_{{3, 2}};
};

TEST_F(ErrorFeedbackTest, BeginsWithNothing) {
  feedback_.Begin(Row(0));
  EXPECT_EQ(Before(0), 0.0f);
  EXPECT_EQ(Before(1), 0.0f);
}

TEST_F(ErrorFeedbackTest, WhatARowLeftOutIsInTheNextIfItWasIncluded) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  feedback_.Begin(Row(1));
  EXPECT_EQ(Before(0), 0.5f);
  EXPECT_EQ(Before(1), 0.5f);
}

TEST_F(ErrorFeedbackTest, ARowThatWasNotIncludedChangesNothing) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  Push(Row(1), 0.25f);
  feedback_.Settle(Row(1), false);
  feedback_.Begin(Row(2));
  EXPECT_EQ(Before(0), 0.5f);
}

TEST_F(ErrorFeedbackTest, ARowWithoutAnOutcomeChangesNothing) {
  Push(Row(0), 0.5f);
  feedback_.Begin(Row(1));
  EXPECT_EQ(Before(0), 0.0f);
}

TEST_F(ErrorFeedbackTest, AHigherAttemptBeginsWithTheSameResidual) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  Push(Row(1), 0.25f);
  Push(Row(1, 1), 0.125f);
  EXPECT_EQ(Before(0), 0.5f);
  // The replaced attempt counted after all: what it left is not known any more.
  feedback_.Settle(Row(1, 0), true);
  feedback_.Begin(Row(2));
  EXPECT_EQ(Before(0), 0.5f);
}

// P27: the bytes must be the same again.
TEST_F(ErrorFeedbackTest, AnAttemptThatIsSentAgainHasTheSameResidual) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  Push(Row(1), 0.25f);
  EXPECT_EQ(Before(1), 0.5f);
  Send(1, 0.25f);
  EXPECT_EQ(Before(1), 0.5f);
  feedback_.Settle(Row(1), true);
  EXPECT_EQ(Before(1), 0.5f);  // until the next row begins
  feedback_.Begin(Row(2));
  EXPECT_EQ(Before(1), 0.25f);
}

TEST_F(ErrorFeedbackTest, OnlyTheFirstOutcomeOfARowCounts) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  feedback_.Settle(Row(0), false);
  feedback_.Begin(Row(1));
  EXPECT_EQ(Before(0), 0.5f);
}

TEST_F(ErrorFeedbackTest, OutcomesOfOtherRowsMeanNothing) {
  Push(Row(3), 0.5f);
  for (const RowName& other : {Row(2), Row(3, 1), Row(3, 0, 8), RowName()}) {
    feedback_.Settle(other, true);
  }
  feedback_.Begin(Row(4));
  EXPECT_EQ(Before(0), 0.0f);
}

TEST_F(ErrorFeedbackTest, AnAbsentTensorKeepsItsResidual) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  feedback_.Begin(Row(1));
  Send(0, 0.25f);  // and not tensor 1
  feedback_.Settle(Row(1), true);
  feedback_.Begin(Row(2));
  EXPECT_EQ(Before(0), 0.25f);
  EXPECT_EQ(Before(1), 0.5f);
}

TEST_F(ErrorFeedbackTest, AJobThatHasGoneBackBeginsWithNothing) {
  Push(Row(0), 0.5f);
  feedback_.Settle(Row(0), true);
  Push(Row(1), 0.25f);
  feedback_.Settle(Row(1), true);
  feedback_.Forget();
  EXPECT_EQ(Before(0), 0.5f);  // a row that is under way stays what it is
  Push(Row(0, 1), 0.125f);
  EXPECT_EQ(Before(0), 0.0f);
  feedback_.Settle(Row(0, 1), true);
  feedback_.Begin(Row(1));
  EXPECT_EQ(Before(0), 0.125f);
}

// The round is over, so that it cannot count. What it leaves behind must not be
// what the included one has left out.
TEST_F(ErrorFeedbackTest, AnotherPushOfAnIncludedRoundLosesNothing) {
  Push(Row(3), 0.75f);
  feedback_.Settle(Row(3), true);
  Push(Row(4), 0.5f);
  feedback_.Settle(Row(4), true);
  for (uint32_t attempt = 1; attempt < 4; ++attempt) {
    Push(Row(4, attempt), 0.25f);
    EXPECT_EQ(Before(0), 0.5f) << attempt;
    feedback_.Settle(Row(4, attempt), false);
  }
  feedback_.Begin(Row(5));
  EXPECT_EQ(Before(0), 0.5f);
  EXPECT_EQ(Before(1), 0.5f);
}

// Its numbers of rounds may be those of another history.
TEST_F(ErrorFeedbackTest, AnotherSessionOfAnIncludedRoundBeginsWithNothing) {
  Push(Row(4), 0.5f);
  feedback_.Settle(Row(4), true);
  Push(Row(4, 0, 8), 0.25f);
  EXPECT_EQ(Before(0), 0.0f);
}

// Whoever missed that the job went back sees it by the round.
TEST_F(ErrorFeedbackTest, AnEarlierRoundIsOfAnotherHistory) {
  Push(Row(4), 0.5f);
  feedback_.Settle(Row(4), true);
  Push(Row(3), 0.25f);
  EXPECT_EQ(Before(0), 0.0f);
  feedback_.Settle(Row(3), true);
  feedback_.Begin(Row(4, 1));
  EXPECT_EQ(Before(0), 0.25f);
  Push(Row(2), 0.125f);
  EXPECT_EQ(Before(0), 0.0f);
  feedback_.Settle(Row(2), true);
  Push(Row(3), 0.75f);
  EXPECT_EQ(Before(0), 0.125f);
}

TEST_F(ErrorFeedbackTest, SlicesAreParts) {
  feedback_.Begin(Row(0));
  feedback_.ResidualOf(0, 0, 2).after[1] = 1.0f;
  feedback_.ResidualOf(0, 2, 1).after[0] = 2.0f;
  feedback_.Settle(Row(0), true);
  feedback_.Begin(Row(1));
  const Residual all = feedback_.ResidualOf(0, 0, 3);
  EXPECT_EQ(std::vector<float>(all.before.begin(), all.before.end()),
            std::vector<float>({0.0f, 1.0f, 2.0f}));
}

TEST(MakeErrorFeedbackTest, IsForWhatIsRoundedAndForInt8UnlessAskedFor) {
  Manifest manifest;
  manifest.tensors = {{"a", {2, 3}, "", false}, {"b", {}, "", false}};
  const auto makes = [&](DType dtype, absl::optional<bool> wanted) {
    return MakeErrorFeedback(manifest, dtype, wanted) != nullptr;
  };
  EXPECT_TRUE(makes(DType::kI8, absl::nullopt));
  EXPECT_FALSE(makes(DType::kI8, false));
  EXPECT_FALSE(makes(DType::kBF16, absl::nullopt));
  EXPECT_TRUE(makes(DType::kBF16, true));
  EXPECT_FALSE(makes(DType::kF32, true));
  const auto feedback = MakeErrorFeedback(manifest, DType::kI8, absl::nullopt);
  feedback->Begin(Row(0));
  EXPECT_EQ(feedback->ResidualOf(0, 0, 6).after.size(), 6u);
  EXPECT_EQ(feedback->ResidualOf(1, 0, 1).after.size(), 1u);
}

// The theorem: what was sent in all rounds is the sum of the gradients, but for
// one residual, which stays below half a step.
TEST(ErrorFeedbackSumTest, NothingIsLostOverManyRounds) {
  constexpr int64_t kNumElements = 600;
  constexpr int kRounds = 200;
  for (const DType dtype : {DType::kI8, DType::kBF16}) {
    ErrorFeedback feedback({kNumElements});
    std::vector<float> gradient(kNumElements);
    for (int64_t k = 0; k < kNumElements; ++k) {
      gradient[k] = std::sin(static_cast<float>(k)) * 1e-3f;
      if (k % 256 == 0) gradient[k] = 1.0f;
    }
    std::vector<double> sent(kNumElements), once(kNumElements);
    std::vector<uint16_t> bytes(PayloadBytes(dtype, kNumElements) / 2 + 1);
    for (int round = 0; round < kRounds; ++round) {
      feedback.Begin(Row(round));
      EncodeFloats(gradient, dtype, feedback.ResidualOf(0, 0, kNumElements),
                   reinterpret_cast<char*>(bytes.data()));
      const char* const at = reinterpret_cast<const char*>(bytes.data());
      for (int64_t k = 0; k < kNumElements; ++k) {
        double value;
        if (dtype == DType::kBF16) {
          value = FloatOfBf16(bytes[k]);
        } else {
          float scale;
          std::memcpy(&scale, at + k / kScaleBlockElements * 4, 4);
          value = scale * static_cast<double>(static_cast<int8_t>(at[12 + k]));
        }
        sent[k] += value;
        if (round == 0) once[k] = value;
      }
      feedback.Settle(Row(round), true);
    }
    double lost_without = 0.0;
    for (int64_t k = 0; k < kNumElements; ++k) {
      const double sum = static_cast<double>(gradient[k]) * kRounds;
      // Half a step of int8 is 1 / 254, and of bf16 2^-9 of a value up to 1.
      EXPECT_NEAR(sent[k], sum, 1.01 / 254) << DTypeName(dtype) << " " << k;
      lost_without = std::max(lost_without, std::fabs(kRounds * once[k] - sum));
    }
    // What the test would miss if feedback did nothing.
    if (dtype == DType::kI8) {
      EXPECT_GT(lost_without, 0.1);
    }
  }
}

}  // namespace
}  // namespace agg
