// Every instruction set gives the bits of the formula for one element, which
// tests/kernels/narrow_float_test.cc holds to IEEE 754.
#include "worker_client/float_narrowing.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/dtype.h"
#include "kernels/narrow_float.h"

namespace agg {
namespace {

// All signs and exponents with mantissas around those where rounding changes.
std::vector<uint32_t> InterestingBits() {
  std::vector<uint32_t> all;
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {
    for (uint32_t mantissa :
         {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu, 0x2000u, 0x3000u, 0x7fffu,
          0x8000u, 0x8001u, 0xffffu, 0x10000u, 0x18000u, 0x3fffffu, 0x400000u,
          0x7fe000u, 0x7fffffu}) {
      all.push_back(exponent << 23 | mantissa);
    }
  }
  all.push_back(0x3f800000u);  // an odd number: no vector's multiple
  return all;
}

class FloatNarrowingTest : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
  uint16_t Narrowed(float value) const {
    return GetParam() == DType::kBF16 ? Bf16OfFloat(value) : F16OfFloat(value);
  }
  float Widened(uint16_t value) const {
    return GetParam() == DType::kBF16 ? FloatOfBf16(value) : FloatOfF16(value);
  }
};

INSTANTIATE_TEST_SUITE_P(Types, FloatNarrowingTest,
                         testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) {
                           return std::string(DTypeName(info.param));
                         });

TEST_P(FloatNarrowingTest, EveryInstructionSetHasTheBitsOfOneElement) {
  const std::vector<uint32_t> bits = InterestingBits();
  std::vector<float> floats;
  for (uint32_t each : bits) floats.push_back(FloatOfBits(each));
  std::vector<uint16_t> all16(1 << 16);
  for (size_t i = 0; i < all16.size(); ++i) all16[i] = static_cast<uint16_t>(i);

  int64_t left = hwy::SupportedTargets();
  ASSERT_NE(left, 0);
  for (; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    const char* const target = hwy::TargetName(left & -left);
    std::vector<uint16_t> narrowed(floats.size());
    NarrowFloats(floats, GetParam(), absl::MakeSpan(narrowed));
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(narrowed[i], Narrowed(floats[i])) << target << " " << bits[i];
    }
    std::vector<float> widened(all16.size());
    WidenFloats(all16, GetParam(), absl::MakeSpan(widened));
    for (size_t i = 0; i < all16.size(); ++i) {
      ASSERT_EQ(BitsOfFloat(widened[i]), BitsOfFloat(Widened(all16[i])))
          << target << " " << i;
    }
  }
}

TEST_P(FloatNarrowingTest, WritesNothingBeyondTheSpan) {
  for (size_t size = 0; size < 40; ++size) {
    const std::vector<float> from(size, 1.0f);
    std::vector<uint16_t> narrowed(size + 1, 7);
    NarrowFloats(from, GetParam(), absl::MakeSpan(narrowed).first(size));
    EXPECT_EQ(narrowed[size], 7) << size;
    std::vector<float> widened(size + 1, 7.0f);
    WidenFloats(absl::MakeSpan(narrowed).first(size), GetParam(),
                absl::MakeSpan(widened).first(size));
    EXPECT_EQ(widened[size], 7.0f) << size;
    EXPECT_EQ(widened[0], size == 0 ? 7.0f : 1.0f);
  }
}

}  // namespace
}  // namespace agg
