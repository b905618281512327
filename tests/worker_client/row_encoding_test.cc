#include "worker_client/row_encoding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/narrow_float.h"
#include "kernels/row_format.h"

namespace agg {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string Encode(const std::vector<float>& values, DType dtype,
                   const Residual& residual = {}) {
  const auto size = PayloadBytes(dtype, static_cast<int64_t>(values.size()));
  std::vector<uint16_t> memory(size / 2 + 1);
  char* const to = reinterpret_cast<char*>(memory.data());
  EncodeFloats(values, dtype, residual, to);
  return std::string(to, size);
}

struct Int8 {
  std::vector<float> scales;
  std::vector<int> q;
};

Int8 Decode(const std::string& bytes, size_t num_elements) {
  Int8 decoded;
  decoded.scales.resize(NumScales(static_cast<int64_t>(num_elements)));
  std::memcpy(decoded.scales.data(), bytes.data(), decoded.scales.size() * 4);
  for (size_t k = 0; k < num_elements; ++k) {
    decoded.q.push_back(
        static_cast<int8_t>(bytes[decoded.scales.size() * 4 + k]));
  }
  return decoded;
}

Int8 EncodeInt8(const std::vector<float>& values) {
  return Decode(Encode(values, DType::kI8), values.size());
}

// The example of proto/README.md.
TEST(RowEncodingTest, HasTheBytesOfTheProtocolsExample) {
  const std::string expected("\x00\x00\x00\x3f\x02\xfe\x7f\x81", 8);
  EXPECT_EQ(Encode({1.0f, -1.0f, 63.5f, -63.5f}, DType::kI8), expected);
}

// Against the formats' definition, in blocks and behind them.
TEST(RowEncodingTest, CountsWhatItsTypeCannotHold) {
  std::vector<float> values(700, 1.0f);
  int num_f16_infinite = 0;
  int num_f16_zero = 0;
  for (size_t k = 0; k < values.size(); k += 7) {
    values[k] = std::ldexp(k % 2 == 0 ? 1.25f : -1.25f,
                           static_cast<int>(k % 270) - 149);
    if (values[k] == 0.0f) continue;
    num_f16_infinite += std::abs(values[k]) >= 65520.0f;
    num_f16_zero += std::abs(values[k]) <= 0x1p-25f;
  }
  values[1] = 0.0f;
  values[2] = -0.0f;
  values[3] = kInfinity;
  values[4] = std::nanf("");
  values[699] = std::numeric_limits<float>::max();
  ++num_f16_infinite;
  std::vector<uint16_t> memory(2000);
  const auto lost = [&](DType dtype, const std::vector<float>& of) {
    return EncodeFloats(of, dtype, {}, reinterpret_cast<char*>(memory.data()));
  };
  const EncodingLoss f16 = lost(DType::kF16, values);
  EXPECT_EQ(f16.num_infinite, num_f16_infinite);
  EXPECT_EQ(f16.num_vanished, num_f16_zero);
  EXPECT_GT(num_f16_infinite, 10);
  EXPECT_GT(num_f16_zero, 10);
  EXPECT_EQ(lost(DType::kBF16, values).num_infinite, 1);
  EXPECT_EQ(lost(DType::kBF16, {1e-45f, 1e-40f, 0.0f}).num_vanished, 1);
  // A block of denormals is sent as zeros; one with larger values is not.
  EXPECT_EQ(lost(DType::kI8, {1e-40f, 0.0f, -1e-41f}).num_vanished, 2);
  EXPECT_EQ(lost(DType::kI8, {1e-40f, 1.0f}).num_vanished, 0);
  EXPECT_EQ(lost(DType::kI8, {kInfinity, 1.0f}).num_infinite, 0);
}

TEST(RowEncodingTest, RoundsToTheNearestStepAndTiesToEven) {
  const Int8 row =
      EncodeInt8({127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.4f, -126.6f});
  EXPECT_EQ(row.scales, std::vector<float>({1.0f}));
  EXPECT_EQ(row.q, std::vector<int>({127, 0, 2, 2, 0, -2, 0, -127}));
}

TEST(RowEncodingTest, EveryBlockHasAScaleTheLastOneOfWhatIsLeft) {
  std::vector<float> values(600, 127.0f);
  std::fill(values.begin() + 256, values.begin() + 512, -254.0f);
  values[599] = 635.0f;
  const Int8 row = EncodeInt8(values);
  EXPECT_EQ(row.scales, std::vector<float>({1.0f, 2.0f, 5.0f}));
  EXPECT_EQ(row.q[255], 127);
  EXPECT_EQ(row.q[256], -127);
  EXPECT_EQ(row.q[598], 25);  // 25.4
  EXPECT_EQ(row.q[599], 127);
}

// Of any finite values: off by half a step, plus what the two roundings of the
// scale do to 127 steps.
TEST(RowEncodingTest, IsOffByHalfAStepAtMost) {
  std::mt19937 random(3);
  std::uniform_int_distribution<uint32_t> any;
  for (int repetition = 0; repetition < 200; ++repetition) {
    std::vector<float> values;
    while (values.size() < 300) {
      const float value = FloatOfBits(any(random));
      if (std::isfinite(value)) values.push_back(value);
    }
    // Blocks of all magnitudes, not of the largest alone.
    const int shift = static_cast<int>(any(random) % 200);
    for (float& value : values) value = std::ldexp(value, -shift);
    const Int8 row = EncodeInt8(values);
    for (size_t k = 0; k < values.size(); ++k) {
      const double scale = row.scales[k / 256];
      ASSERT_GE(row.q[k], -127);
      const double tolerance =
          scale == 0.0 ? 127 * std::ldexp(1.0, -126) : scale * 0.50002;
      ASSERT_EQ(static_cast<float>(scale * row.q[k]), scale * row.q[k]);
      ASSERT_NEAR(scale * row.q[k], values[k], tolerance) << k;
    }
  }
}

// In 16 bits, and not below: so 127 steps reach the largest value.
TEST(RowEncodingTest, ScalesAreRoundedUpToSixteenBits) {
  for (const float largest : {1.0f, 3.0f, 1e-20f, 0.9999f}) {
    const Int8 row = EncodeInt8({largest});
    const uint32_t bits = BitsOfFloat(row.scales[0]);
    EXPECT_EQ(bits & 0xffu, 0u);
    EXPECT_GE(row.scales[0], largest / 127);
    EXPECT_LE(row.scales[0], largest / 127 * (1 + std::ldexp(1.0f, -15)));
    EXPECT_EQ(row.q[0], 127);
  }
}

TEST(RowEncodingTest, ABlockOfZerosHasTheScaleZero) {
  const Int8 row = EncodeInt8({0.0f, -0.0f, 0.0f});
  EXPECT_EQ(row.scales, std::vector<float>({0.0f}));
  EXPECT_EQ(row.q, std::vector<int>({0, 0, 0}));
}

TEST(RowEncodingTest, TheEndsOfTheFloatRange) {
  const float largest = std::numeric_limits<float>::max();
  const Int8 high = EncodeInt8({largest, -largest, 0.0f});
  EXPECT_TRUE(std::isfinite(high.scales[0]));
  EXPECT_EQ(high.q, std::vector<int>({127, -127, 0}));
  const Int8 least = EncodeInt8({127 * std::ldexp(1.0f, -126)});
  EXPECT_EQ(least.scales[0], std::ldexp(1.0f, -126));
  EXPECT_EQ(least.q[0], 127);
  const Int8 below = EncodeInt8({126 * std::ldexp(1.0f, -126)});
  EXPECT_EQ(below.scales[0], 0.0f);
  EXPECT_EQ(below.q[0], 0);
}

TEST(RowEncodingTest, OneValueThatIsNotFiniteSpoilsItsBlock) {
  for (const float special : {kInfinity, -kInfinity, std::nanf("")}) {
    std::vector<float> values(513, 1.0f);
    values[300] = special;
    const Int8 row = EncodeInt8(values);
    EXPECT_TRUE(std::isfinite(row.scales[0]));
    EXPECT_TRUE(std::isnan(row.scales[1]));
    EXPECT_TRUE(std::isfinite(row.scales[2]));
    EXPECT_EQ(std::count(row.q.begin() + 256, row.q.begin() + 512, 0), 256);
  }
}

TEST(RowEncodingTest, BytesAreThoseOfGradientPlusResidualAndTheRestIsKept) {
  std::vector<float> gradient, before, sum, after(700, -7.0f);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int k = 0; k < 700; ++k) {
    gradient.push_back(normal(random));
    before.push_back(0.01f * normal(random));
    sum.push_back(gradient.back() + before.back());
  }
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kI8}) {
    const std::string bytes =
        Encode(gradient, dtype, {before, absl::MakeSpan(after)});
    EXPECT_EQ(bytes, Encode(sum, dtype)) << DTypeName(dtype);
    const Int8 row = Decode(bytes, 700);
    for (size_t k = 0; k < 700; ++k) {
      double sent = static_cast<double>(row.scales[k / 256]) * row.q[k];
      if (dtype != DType::kI8) {
        uint16_t bits;
        std::memcpy(&bits, bytes.data() + 2 * k, 2);
        sent = dtype == DType::kBF16 ? FloatOfBf16(bits) : FloatOfF16(bits);
      }
      ASSERT_EQ(after[k], sum[k] - sent) << k;
    }
  }
}

TEST(RowEncodingTest, NothingIsNothing) {
  EXPECT_EQ(Encode({}, DType::kI8), "");
  EXPECT_EQ(Encode({}, DType::kBF16), "");
}

Manifest TwoTensors() {
  Manifest manifest;
  manifest.tensors = {{"a", {1000}, "", false}, {"b", {1000}, "", false}};
  return manifest;
}

TEST(EncodingTallyTest, NamesTheFirstTensorAndWhatToDo) {
  EncodingTally tally;
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kF16), "");
  tally.Set(2, 1, {3, 0});
  tally.Set(0, 0, {0, 0});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kF16),
            "this worker's row had 3 finite values that push_dtype \"f16\" "
            "sends as infinite, so that it cannot count: tensor \"b\"; "
            "allowed: another loss_scale, or push_dtype \"f32\" or \"bf16\"");
  tally.Set(1, 0, {2, 0});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kBF16),
            "this worker's row had 5 finite values that push_dtype \"bf16\" "
            "sends as infinite, so that it cannot count: tensor \"a\"; "
            "allowed: another loss_scale, or push_dtype \"f32\"");
}

TEST(EncodingTallyTest, FewThatVanishAreNothingToSay) {
  EncodingTally tally;
  tally.Set(1, 1, {0, 2});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kI8), "");
  tally.Set(2, 1, {0, 1});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kI8),
            "this worker's row had 3 values that push_dtype \"int8\" sends as "
            "zero: tensor \"b\"; allowed: another loss_scale, or push_dtype "
            "\"f32\"");
}

TEST(EncodingTallyTest, ASliceThatIsRoundedAgainCountsOnce) {
  EncodingTally tally;
  tally.Set(0, 0, {2, 0});
  tally.Set(1, 0, {1, 0});
  tally.Set(0, 0, {2, 0});
  EXPECT_NE(tally.Describe(TwoTensors(), DType::kF16).find("had 3 finite"),
            std::string::npos);
  tally.Set(0, 0, {0, 0});
  tally.Set(1, 0, {0, 0});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kF16), "");
}

// Which row's residual is in the next one, for every way that a row can end.

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

  // Sends both tensors of a row that counts.
  void Include(const RowName& row, float left) {
    Push(row, left);
    feedback_.Settle(row, true);
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
  Include(Row(0), 0.5f);
  feedback_.Begin(Row(1));
  EXPECT_EQ(Before(0), 0.5f);
  EXPECT_EQ(Before(1), 0.5f);
}

TEST_F(ErrorFeedbackTest, ARowThatWasNotIncludedChangesNothing) {
  Include(Row(0), 0.5f);
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
  Include(Row(0), 0.5f);
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
  Include(Row(0), 0.5f);
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
  Include(Row(0), 0.5f);
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
  Include(Row(0), 0.5f);
  feedback_.Begin(Row(1));
  Send(0, 0.25f);  // and not tensor 1
  feedback_.Settle(Row(1), true);
  feedback_.Begin(Row(2));
  EXPECT_EQ(Before(0), 0.25f);
  EXPECT_EQ(Before(1), 0.5f);
}

TEST_F(ErrorFeedbackTest, AJobThatHasGoneBackBeginsWithNothing) {
  Include(Row(0), 0.5f);
  Include(Row(1), 0.25f);
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
  Include(Row(3), 0.75f);
  Include(Row(4), 0.5f);
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
  Include(Row(4), 0.5f);
  Push(Row(4, 0, 8), 0.25f);
  EXPECT_EQ(Before(0), 0.0f);
}

// Whoever missed that the job went back sees it by the round.
TEST_F(ErrorFeedbackTest, AnEarlierRoundIsOfAnotherHistory) {
  Include(Row(4), 0.5f);
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
