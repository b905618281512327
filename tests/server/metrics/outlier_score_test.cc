#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/round_state.h"

namespace agg {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(OutlierScoresTest, CountsDeviationsOfTheLogarithms) {
  // Binary logarithms 0 1 1 2 2 3 3 4 10: median 2, distances 2 1 1 0 0 1 1 2
  // 8, MAD 1.
  const auto near = [](double value) { return DoubleNear(value, 1e-12); };
  const double one = 1 / 1.4826;
  EXPECT_THAT(
      OutlierScores({1, 2, 2, 4, 4, 8, 8, 16, 1024}),
      ElementsAre(near(2 * one), near(one), near(one), near(0.0), near(0.0),
                  near(one), near(one), near(2 * one), near(8 * one)));
}

TEST(OutlierScoresTest, TheScaleOfTheGradientsDoesNotMatter) {
  std::vector<double> norms = {1, 2, 5, 9, 11, 12, 14, 20};
  const std::vector<double> one = OutlierScores(norms);
  for (double& norm : norms) norm *= 1e9;
  const std::vector<double> two = OutlierScores(norms);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], two[i], 1e-9);
  }
}

TEST(OutlierScoresTest, TheMedianOfAnEvenNumberIsBetweenTheMiddleTwo) {
  // Binary logarithms 0 0 1 1 3 3 6 6: median 2, distances 2 2 1 1 1 1 4 4, MAD
  // 1.5.
  EXPECT_NEAR(OutlierScores({1, 1, 2, 2, 8, 8, 64, 64})[7], 4 / 1.5 / 1.4826,
              1e-12);
}

TEST(OutlierScoresTest, RowsWithoutANormNeitherCountNorHaveAScore) {
  const std::vector<double> scores =
      OutlierScores({kNan, 1, 1, 1, 2, 2, 4, 4, 4});
  EXPECT_TRUE(std::isnan(scores[0]));
  EXPECT_NEAR(scores[1], 1 / 1.4826, 1e-12);
  EXPECT_EQ(scores[4], 0.0);
}

// Three norms of a healthy job once had a score of 13.9.
TEST(OutlierScoresTest, FewerThanTheSmallestNumberHaveNone) {
  EXPECT_THAT(OutlierScores({}), IsEmpty());
  EXPECT_THAT(OutlierScores({1.0, 1.01, 1.2}), Each(IsNan()));
  std::vector<double> norms = {1, 2, 3, 4, 5, 6, 7, kNan};
  EXPECT_THAT(OutlierScores(norms), Each(IsNan()));
  norms.back() = 8;
  EXPECT_THAT(OutlierScores(norms), Each(Not(IsNan())));
}

// How README.md explains kMinOutlierNorms: the share of rounds of equal workers
// in which anybody's score is above 5. At 7 norms it is 7.4%, at 3 it is 21%.
TEST(OutlierScoresTest, HealthyRoundsHaveHighScoresSeldom) {
  constexpr int kRounds = 20000;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (size_t num_norms :
       {kMinOutlierNorms, kMinOutlierNorms + 1, 2 * kMinOutlierNorms}) {
    int num_high = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> norms(num_norms);
      for (double& norm : norms) norm = std::exp(normal(random));
      const std::vector<double> scores = OutlierScores(norms);
      num_high += *std::max_element(scores.begin(), scores.end()) > 5.0;
    }
    EXPECT_LT(num_high, 0.06 * kRounds) << num_norms;
  }
}

TEST(OutlierScoresTest, AnotherNormThanTheManyEqualOnesIsInfinitelyFar) {
  EXPECT_THAT(OutlierScores({3, 3, 3, 3, 3, 3, 3, 5}),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, kInfinity));
  EXPECT_THAT(OutlierScores({3, 3, 3, 3, 3, 3, 3, 3}), Each(0.0));
}

TEST(OutlierScoresTest, AZeroNormIsInfinitelyFar) {
  EXPECT_EQ(OutlierScores({0, 1, 2, 4, 8, 16, 32, 64})[0], kInfinity);
  EXPECT_THAT(OutlierScores({0, 0, 0, 0, 0, 0, 0, 1}),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, kInfinity));
}

}  // namespace
}  // namespace agg
