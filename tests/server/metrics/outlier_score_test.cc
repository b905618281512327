#include "server/metrics/outlier_score.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(OutlierScoresTest, CountsDeviationsOfTheLogarithms) {
  // Binary logarithms 0 1 2 3 10: median 2, distances 2 1 0 1 8, MAD 1.
  const auto near = [](double value) { return DoubleNear(value, 1e-12); };
  EXPECT_THAT(OutlierScores({1.0, 2.0, 4.0, 8.0, 1024.0}),
              ElementsAre(near(2 / 1.4826), near(1 / 1.4826), near(0.0),
                          near(1 / 1.4826), near(8 / 1.4826)));
}

TEST(OutlierScoresTest, TheScaleOfTheGradientsDoesNotMatter) {
  const std::vector<double> one = OutlierScores({1.0, 2.0, 5.0, 9.0});
  const std::vector<double> two = OutlierScores({1e9, 2e9, 5e9, 9e9});
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], two[i], 1e-9);
  }
}

TEST(OutlierScoresTest, TheMedianOfAnEvenNumberIsBetweenTheMiddleTwo) {
  // Binary logarithms 0 1 3 6: median 2, distances 2 1 1 4, MAD 1.5.
  EXPECT_NEAR(OutlierScores({1.0, 2.0, 8.0, 64.0})[3], 4 / 1.5 / 1.4826, 1e-12);
}

TEST(OutlierScoresTest, RowsWithoutANormNeitherCountNorHaveAScore) {
  EXPECT_THAT(OutlierScores({kNan, 1.0, 2.0, 4.0}),
              ElementsAre(IsNan(), DoubleNear(1 / 1.4826, 1e-12), 0.0,
                          DoubleNear(1 / 1.4826, 1e-12)));
}

TEST(OutlierScoresTest, FewerThanThreeHaveNone) {
  EXPECT_THAT(OutlierScores({}), IsEmpty());
  EXPECT_THAT(OutlierScores({1.0, 9.0}), ElementsAre(IsNan(), IsNan()));
  EXPECT_THAT(OutlierScores({1.0, kNan, 9.0}),
              ElementsAre(IsNan(), IsNan(), IsNan()));
}

TEST(OutlierScoresTest, AnotherNormThanTheManyEqualOnesIsInfinitelyFar) {
  EXPECT_THAT(OutlierScores({3.0, 3.0, 3.0, 5.0}),
              ElementsAre(0.0, 0.0, 0.0, kInfinity));
  EXPECT_THAT(OutlierScores({3.0, 3.0, 3.0}), ElementsAre(0.0, 0.0, 0.0));
}

TEST(OutlierScoresTest, AZeroNormIsInfinitelyFar) {
  EXPECT_EQ(OutlierScores({0.0, 1.0, 2.0, 4.0, 8.0})[0], kInfinity);
  EXPECT_THAT(OutlierScores({0.0, 0.0, 0.0, 1.0}),
              ElementsAre(0.0, 0.0, 0.0, kInfinity));
}

}  // namespace
}  // namespace agg
