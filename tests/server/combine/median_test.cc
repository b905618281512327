#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/outliers.h"

namespace agg {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::IsNan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(MedianTest, TheMiddleOrBetweenTheMiddleTwo) {
  EXPECT_EQ(Median<double>({7}), 7);
  EXPECT_EQ(Median<double>({9, 1, 4}), 4);
  EXPECT_EQ(Median<double>({9, 1, 4, 6}), 5);
  EXPECT_EQ(Median<double>({-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(Median<double>({-kInfinity, 2, kInfinity}), 2);
}

// Median 4, distances 3 0 2 2 16, MAD 2.
TEST(RobustDeviationsTest, DividesByTheMedianDistanceOrTheLeast) {
  const double mad = 1.4826 * 2;
  EXPECT_THAT(RobustDeviations({1, 4, 2, 6, 20}, 0),
              ElementsAre(DoubleEq(3 / mad), 0, DoubleEq(2 / mad),
                          DoubleEq(2 / mad), DoubleEq(16 / mad)));
  EXPECT_THAT(RobustDeviations({1, 4, 2, 6, 20}, 4),
              ElementsAre(0.75, 0, 0.5, 0.5, 4));
}

TEST(RobustDeviationsTest, TheMedianHasZeroWhateverTheDivisor) {
  EXPECT_THAT(RobustDeviations({3, 3, 3, 5}, 0),
              ElementsAre(0, 0, 0, kInfinity));
  EXPECT_THAT(RobustDeviations({7}, 0), ElementsAre(0));
  EXPECT_THAT(RobustDeviations({-kInfinity, -kInfinity, -kInfinity, 5}, 0),
              ElementsAre(0, 0, 0, kInfinity));
  EXPECT_THAT(RobustDeviations({-kInfinity, 1, 2, 3, 4}, 0.5),
              ElementsAre(kInfinity, DoubleEq(1 / 1.4826), 0,
                          DoubleEq(1 / 1.4826), DoubleEq(2 / 1.4826)));
}

// Half of the values are infinite: there is no scale to measure them by.
TEST(RobustDeviationsTest, InfinitiesOverInfinityAreUndefined) {
  const std::vector<double> deviations =
      RobustDeviations({-kInfinity, -kInfinity, 2, 3}, 0);
  EXPECT_EQ(deviations[0], 0);
  EXPECT_THAT(std::vector<double>(deviations.begin() + 2, deviations.end()),
              Each(IsNan()));
}

}  // namespace
}  // namespace agg
