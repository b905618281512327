#include "server/combine/median.h"

#include <limits>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(MedianTest, TheMiddleOrBetweenTheMiddleTwo) {
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({9, 1, 4, 6}), 5);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Median({-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(Median({-kInfinity, 2, kInfinity}), 2);
}

}  // namespace
}  // namespace agg
