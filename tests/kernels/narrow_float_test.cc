// The element conversions by themselves, over all patterns; as a backend
// applies them, they are part of the conformance suite.
#include "kernels/narrow_float.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/conformance/oracle.h"

namespace agg {
namespace {

TEST(NarrowFloatTest, WidensEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double bf16 = oracle::Widen(DType::kBF16, pattern);
    const double f16 = oracle::Widen(DType::kF16, pattern);
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(FloatOfBf16(pattern)));
    } else {
      ASSERT_EQ(FloatOfBf16(pattern), bf16) << bits;
      ASSERT_EQ(std::signbit(FloatOfBf16(pattern)), std::signbit(bf16));
    }
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(FloatOfF16(pattern)));
    } else {
      ASSERT_EQ(FloatOfF16(pattern), f16) << bits;
      ASSERT_EQ(std::signbit(FloatOfF16(pattern)), std::signbit(f16));
    }
  }
}

// Every 4099th float32 pattern (a prime step: all exponents, all low bits).
TEST(NarrowFloatTest, NarrowsAcrossAllFloats) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    const float value = FloatOfBits(static_cast<uint32_t>(bits));
    ASSERT_EQ(Bf16OfFloat(value), oracle::Narrow(DType::kBF16, value)) << bits;
    ASSERT_EQ(F16OfFloat(value), oracle::Narrow(DType::kF16, value)) << bits;
  }
}

TEST(NarrowFloatTest, RoundsTiesToEven) {
  EXPECT_EQ(Bf16OfFloat(FloatOfBits(0x3f808000)), 0x3f80);
  EXPECT_EQ(Bf16OfFloat(FloatOfBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(Bf16OfFloat(FloatOfBits(0x3f808001)), 0x3f81);
  EXPECT_EQ(F16OfFloat(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(F16OfFloat(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(F16OfFloat(0x1p-25f), 0x0000);
  EXPECT_EQ(F16OfFloat(3 * 0x1p-25f), 0x0002);
  EXPECT_EQ(F16OfFloat(65519.996f), 0x7bff);
  EXPECT_EQ(F16OfFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Bf16OfFloat(FloatOfBits(0x7f7fffff)), 0x7f80);
}

}  // namespace
}  // namespace agg
