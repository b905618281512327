#include <limits>

#include "gtest/gtest.h"
#include "server/coordinator/round_engine.h"

namespace agg {
namespace {

TEST(TrustRatioTest, IsThePapers) {
  OptimizerOptions lars;
  lars.kind = OptimizerKind::kLars;
  lars.trust_coefficient = 0.5f;
  lars.epsilon = 0.0f;
  EXPECT_FLOAT_EQ(TrustRatio(lars, 0.25, {16.0, 4.0}),
                  0.5 * 4.0 / (2.0 + 0.25 * 4.0));
  OptimizerOptions lamb;
  lamb.kind = OptimizerKind::kLamb;
  EXPECT_FLOAT_EQ(TrustRatio(lamb, 0.25, {16.0, 4.0}), 2.0);
  EXPECT_EQ(TrustRatio(OptimizerOptions(), 0.0, {16.0, 4.0}), 1.0f);
}

TEST(TrustRatioTest, IsOneWhereANormIsZeroOrNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (OptimizerKind kind : {OptimizerKind::kLars, OptimizerKind::kLamb}) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {0.0, 4.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {4.0, 0.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {nan, 1.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {1.0, nan}), 1.0f);
  }
}

// Infinity times an update of nearly nothing would not be finite.
TEST(TrustRatioTest, IsOneWhereItDoesNotFitFloat32) {
  OptimizerOptions lamb;
  lamb.kind = OptimizerKind::kLamb;
  EXPECT_EQ(TrustRatio(lamb, 0.0, {1.0, 1e-78}), 1.0f);
  EXPECT_FLOAT_EQ(TrustRatio(lamb, 0.0, {1.0, 1e-76}), 1e38f);
}

}  // namespace
}  // namespace agg
