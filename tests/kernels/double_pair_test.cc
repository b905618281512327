#include "kernels/double_pair.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace agg {
namespace {

__float128 Value(DoublePair pair) {
  return static_cast<__float128>(pair.hi) + pair.lo;
}

double RandomDouble(std::mt19937* random) {
  std::uniform_real_distribution<double> mantissa(-1.0, 1.0);
  std::uniform_int_distribution<int> exponent(-20, 20);
  return std::ldexp(mantissa(*random), exponent(*random));
}

TEST(DoublePairTest, SumsAndProductsAreExact) {
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const double a = RandomDouble(&random);
    const double b = RandomDouble(&random);
    ASSERT_TRUE(Value(TwoSum(a, b)) == static_cast<__float128>(a) + b);
    ASSERT_TRUE(Value(TwoProduct(a, b)) == static_cast<__float128>(a) * b);
    const double large = std::fabs(a) >= std::fabs(b) ? a : b;
    const double small = std::fabs(a) >= std::fabs(b) ? b : a;
    const DoublePair sum = FastTwoSum(large, small);
    ASSERT_TRUE(Value(sum) == static_cast<__float128>(a) + b);
    ASSERT_EQ(sum.hi, a + b);
  }
}

TEST(DoublePairTest, PairSumsKeepAHundredBits) {
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    const DoublePair a = TwoProduct(RandomDouble(&random), 1.0 / 3);
    const DoublePair b = TwoProduct(RandomDouble(&random), 1.0 / 7);
    const __float128 exact = Value(a) + Value(b);
    const double magnitude = std::fabs(a.hi) + std::fabs(b.hi);
    const DoublePair sum = PairAdd(a, b);
    ASSERT_LE(std::fabs(static_cast<double>(Value(sum) - exact)),
              std::ldexp(magnitude, -104));
    const DoublePair plus = PairAdd(a, b.hi);
    ASSERT_LE(std::fabs(static_cast<double>(Value(plus) - (Value(a) + b.hi))),
              std::ldexp(magnitude, -104));
  }
}

}  // namespace
}  // namespace agg
