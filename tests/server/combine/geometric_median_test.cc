#include "server/combine/geometric_median.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/combination_rules.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using testing::Each;
using testing::ElementsAre;

std::vector<double> Median(const Rows& rows,
                           GeometricMedianOptions options = {}) {
  std::vector<double> weights(rows.size());
  GeometricMedianCoefficients(options, MakeGram(rows), absl::MakeSpan(weights));
  return weights;
}

TEST(GeometricMedianTest, FewRows) {
  EXPECT_THAT(Median({{3, 4}}), ElementsAre(1.0));
  EXPECT_THAT(Median({{3, 4}, {-1, 9}}), ElementsAre(0.5, 0.5));
  EXPECT_THAT(Median(Rows(4, {0, 0})), Each(0.25));
  EXPECT_THAT(Median(Rows(4, {2, 1})), Each(0.25));
  EXPECT_THAT(Median(Rows(4)), Each(0.25));
}

// On a line it is the median.
TEST(GeometricMedianTest, OfThreeNumbersItIsTheMiddleOne) {
  const std::vector<double> weights = Median({{0}, {1}, {1000}});
  const double point = weights[1] + 1000 * weights[2];
  EXPECT_NEAR(point, 1.0, 1e-5);
}

// In the middle of three rows at equal angles, whatever their lengths: the
// Fermat point.
TEST(GeometricMedianTest, IsTheFermatPoint) {
  const double half = std::sqrt(3.0) / 2;
  const Rows rows = {{1, 0}, {-1, 2 * half}, {-2.5, -5 * half}};
  const reference::Vector point =
      reference::WeightedSum(rows, Median(rows, {1000, 1e-6}));
  EXPECT_NEAR(static_cast<double>(point[0]), 0.0, 1e-6);
  EXPECT_NEAR(static_cast<double>(point[1]), 0.0, 1e-6);
}

TEST(GeometricMedianTest, MoreThanHalfThatAreEqualWin) {
  Rows rows(5, {1, 2, 3});
  rows.push_back({1e6, 0, 0});
  rows.push_back({0, -1e20, 0});
  const std::vector<double> weights = Median(rows);
  const reference::Vector point = reference::WeightedSum(rows, weights);
  // About nu = 1e-6 of the norm from them.
  EXPECT_LE(reference::Distance(point, reference::ToVector(rows[0])), 1e-5);
}

TEST(GeometricMedianTest, MostRowsZero) {
  const Rows rows = {{0, 0}, {0, 0}, {0, 0}, {1e30, 0}};
  const reference::Vector point =
      reference::WeightedSum(rows, Median(rows, {500, 1e-6}));
  EXPECT_LE(reference::Norm(point), 1e-100L);
}

// After `iterations` the sum of distances is near its least value: with one of
// eight rows 100 times as long, and with three of them.
TEST(GeometricMedianTest, TheDefaultIterationsAreEnough) {
  for (const int num_bad : {0, 1, 2, 3}) {
    for (int seed = 0; seed < 4; ++seed) {
      Rows rows = BiasedLcgRows(70 + seed, 8, 200, 1.0);
      for (int i = 0; i < num_bad; ++i) {
        for (double& value : rows[i]) value *= -100.0;
      }
      const reference::Vector point =
          reference::WeightedSum(rows, Median(rows));
      const reference::Vector best =
          reference::GeometricMedian(rows, 600, 1e-6L);
      EXPECT_LE(reference::SumOfDistances(rows, point),
                reference::SumOfDistances(rows, best) * (1 + 1e-9L))
          << num_bad << " bad rows, seed " << seed;
    }
  }
}

// Of {0, 4, 5, 11} three are within 5, 4, 5, 7 of each: so the start is at
// (28 * 0 + 35 * 4 + 28 * 5 + 20 * 11) / 111 = 500/111, which is 500/111,
// 56/111, 55/111 and 721/111 from them.
TEST(GeometricMedianTest, OneIterationIsOneStepFromTheNearestMajority) {
  const Rows rows = {{0}, {4}, {5}, {11}};
  const double sum = 1.0 / 500 + 1.0 / 56 + 1.0 / 55 + 1.0 / 721;
  const std::vector<double> weights = Median(rows, {1, 1e-6});
  EXPECT_NEAR(weights[0], 1.0 / 500 / sum, 1e-14);
  EXPECT_NEAR(weights[1], 1.0 / 56 / sum, 1e-14);
  EXPECT_NEAR(weights[2], 1.0 / 55 / sum, 1e-14);
  EXPECT_NEAR(weights[3], 1.0 / 721 / sum, 1e-14);
}

// 2/5 of the median norm, 4.5, is 1.8: two of the distances count as that.
TEST(GeometricMedianTest, EpsilonIsAPartOfTheMedianNorm) {
  const Rows rows = {{0}, {4}, {5}, {11}};
  const double least = 1.8 * 111;
  const double sum = 1.0 / 500 + 1.0 / least + 1.0 / least + 1.0 / 721;
  const std::vector<double> weights = Median(rows, {1, 0.4});
  EXPECT_NEAR(weights[0], 1.0 / 500 / sum, 1e-14);
  EXPECT_NEAR(weights[1], 1.0 / least / sum, 1e-14);
  EXPECT_NEAR(weights[2], 1.0 / least / sum, 1e-14);
  EXPECT_NEAR(weights[3], 1.0 / 721 / sum, 1e-14);
}

// Where distances cancel, the result moves by no more than eps ||g||^2 / nu.
TEST(GeometricMedianTest, NeedsNoCompensatedMatrix) {
  for (int seed = 0; seed < 10; ++seed) {
    Rows rows = NormalRows(20 + seed, 7, 100);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i == 6) continue;  // one far away
      for (double& value : rows[i]) value = 1.0 + 1e-8 * value;
    }
    const std::vector<double> weights = Median(rows);
    const reference::Vector point = reference::WeightedSum(rows, weights);
    EXPECT_LE(
        reference::Distance(point, reference::GeometricMedian(rows, 64, 1e-6L)),
        1e-9 * BackwardScale(rows, weights));
  }
}

}  // namespace
}  // namespace agg
