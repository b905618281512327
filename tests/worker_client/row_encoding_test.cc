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

}  // namespace
}  // namespace agg
