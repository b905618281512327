#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "server/shard/shard_compute.h"
#include "tests/conformance/oracle.h"

namespace agg {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Values() {
  std::vector<float> values = {
      0.0f,        -0.0f,  1.0f,     65504.0f,   65519.99f,  -65520.0f,
      65520.f,     3.2e5f, 3.39e38f, 3.4028e38f, 1e-45f,     2.9802322e-8f,
      2.98024e-8f, -6e-8f, 1e-40f,   kInfinity,  -kInfinity, std::nanf("")};
  for (int e = -149; e < 128; ++e) {
    for (const float part : {1.0f, 1.999f, -1.0f, -1.5f}) {
      values.push_back(std::ldexp(part, e));
    }
  }
  return values;
}

// Against the formats' definition.
TEST(NarrowingLossTest, CountsWhatBecomesInfiniteAndZero) {
  const std::vector<float> values = Values();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    NarrowingLoss expected;
    for (const float value : values) {
      const double narrowed =
          oracle::Widen(dtype, oracle::Narrow(dtype, value));
      expected.num_infinite += std::isfinite(value) && std::isinf(narrowed);
      expected.num_compared += value != 0.0f;
      expected.num_vanished += value != 0.0f && narrowed == 0.0;
    }
    EXPECT_GT(expected.num_infinite, 0u);
    EXPECT_GT(expected.num_vanished, 0u);
    NarrowingLoss loss;
    AddInfinite(values, dtype, 7, &loss);
    AddVanished(values, dtype, &loss);
    EXPECT_EQ(loss.num_infinite, expected.num_infinite) << DTypeName(dtype);
    EXPECT_EQ(loss.num_compared, expected.num_compared);
    EXPECT_EQ(loss.num_vanished, expected.num_vanished);
    EXPECT_EQ(loss.slice, 7);
    AddInfinite(std::vector<float>{1e5f, 1e38f}, dtype, 9, &loss);
    EXPECT_EQ(loss.slice, 7);
    AddInfinite(std::vector<float>{3.4028e38f}, dtype, 3, &loss);
    EXPECT_EQ(loss.slice, 3);
  }
}

TEST(NarrowingLossTest, Float32LosesNothing) {
  NarrowingLoss loss;
  AddInfinite(Values(), DType::kF32, 0, &loss);
  AddVanished(Values(), DType::kF32, &loss);
  EXPECT_EQ(loss.slice, -1);
  EXPECT_EQ(loss.num_infinite, 0u);
  EXPECT_EQ(loss.num_vanished, 0u);
}

}  // namespace
}  // namespace agg
