// The element conversions by themselves, over all patterns; as a backend
// applies them, they are part of the conformance suite.
#include "kernels/narrow_float.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/double_pair.h"
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

template <class Real>
__float128 Value(Pair<Real> pair) {
  return static_cast<__float128>(pair.hi) + pair.lo;
}

template <class Real>
class PairTest : public testing::Test {
 protected:
  Real Random() {
    std::uniform_real_distribution<Real> mantissa(-1, 1);
    std::uniform_int_distribution<int> exponent(-20, 20);
    return std::ldexp(mantissa(random_), exponent(random_));
  }

  // The error of a sum of pairs, relative to the operands' magnitudes: 4 u^2.
  static Real Unit() {
    return std::ldexp(Real{4}, -2 * std::numeric_limits<Real>::digits);
  }

  std::mt19937 random_{1};
};

using Reals = testing::Types<double, float>;
TYPED_TEST_SUITE(PairTest, Reals);

TYPED_TEST(PairTest, SumsAndProductsAreExact) {
  for (int i = 0; i < 100000; ++i) {
    const TypeParam a = this->Random();
    const TypeParam b = this->Random();
    ASSERT_TRUE(Value(TwoSum(a, b)) == static_cast<__float128>(a) + b);
    ASSERT_TRUE(Value(TwoProduct(a, b)) == static_cast<__float128>(a) * b);
    const TypeParam large = std::fabs(a) >= std::fabs(b) ? a : b;
    const TypeParam small = std::fabs(a) >= std::fabs(b) ? b : a;
    const Pair<TypeParam> sum = FastTwoSum(large, small);
    ASSERT_TRUE(Value(sum) == static_cast<__float128>(a) + b);
    ASSERT_EQ(sum.hi, a + b);
  }
}

TYPED_TEST(PairTest, SumsKeepTwiceTheBits) {
  for (int i = 0; i < 100000; ++i) {
    const Pair<TypeParam> a = TwoProduct(this->Random(), TypeParam{1} / 3);
    // Often nearly -a: what cancels must not leave more of an error.
    Pair<TypeParam> b = TwoProduct(this->Random(), TypeParam{1} / 7);
    if (i % 2 == 0) {
      b.hi = std::nextafter(-a.hi, static_cast<TypeParam>(i % 4 - 1));
      b.lo = a.lo / 3;
    }
    const __float128 exact = Value(a) + Value(b);
    const TypeParam bound = this->Unit() * (std::fabs(a.hi) + std::fabs(b.hi));
    const Pair<TypeParam> sum = PairAdd(a, b);
    ASSERT_LE(std::fabs(static_cast<double>(Value(sum) - exact)), bound);
    const Pair<TypeParam> plus = PairAdd(a, b.hi);
    ASSERT_LE(std::fabs(static_cast<double>(Value(plus) - (Value(a) + b.hi))),
              bound);
  }
}

TEST(FloatPairTest, AProductWhoseErrorUnderflowsIsNearlyExact) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> mantissa(1.0f, 2.0f);
  for (int exponent = -40; exponent > -75; --exponent) {
    const float a = std::ldexp(mantissa(random), exponent);
    const float b = std::ldexp(mantissa(random), exponent);
    const double error = static_cast<double>(Value(TwoProduct(a, b))) -
                         static_cast<double>(a) * b;
    EXPECT_LE(std::fabs(error), 0x1p-150) << exponent;
  }
}

}  // namespace
}  // namespace agg
