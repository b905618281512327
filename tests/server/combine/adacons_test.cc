#include "server/combine/adacons.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/reference/combination_rules.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using reference::Rescale;

double Error(const Rows& rows, const std::vector<double>& weights,
             const reference::Vector& expected) {
  return static_cast<double>(reference::Distance(
             reference::WeightedSum(rows, weights), expected)) /
         BackwardScale(rows, weights);
}

void ExpectLikeReference(AdaconsRescale rescale, Rescale expected_rescale) {
  for (int num_rows = 1; num_rows <= 33; ++num_rows) {
    AdaconsOptions options;
    options.rescale = rescale;
    std::vector<double> momentum;
    reference::Vector expected_momentum;
    for (int step = 0; step < 4; ++step) {
      const Rows rows = BiasedLcgRows(10 * num_rows + step, num_rows, 40, 0.5);
      std::vector<double> weights(num_rows);
      const bool ok = AdaconsCoefficients(options, MakeGram(rows), &momentum,
                                          absl::MakeSpan(weights));
      const reference::AdaconsStep expected = reference::Adacons(
          rows, 0.99L, 1e-8L, expected_rescale, &expected_momentum);
      EXPECT_EQ(ok, !expected.fell_back);
      EXPECT_LE(Error(rows, weights, expected.direction), 1e-13)
          << num_rows << " rows, step " << step;
    }
  }
}

TEST(AdaconsTest, MatchesVectors) {
  ExpectLikeReference(AdaconsRescale::kNone, Rescale::kNone);
}

TEST(AdaconsTest, MatchesVectorsRescaledByMeanNorm) {
  ExpectLikeReference(AdaconsRescale::kMeanNorm, Rescale::kMeanNorm);
}

TEST(AdaconsTest, MatchesVectorsRescaledToTheMean) {
  ExpectLikeReference(AdaconsRescale::kMatchMean, Rescale::kMatchMean);
}

TEST(AdaconsTest, AlphasSumToOne) {
  const GramMatrix gram = MakeGram(BiasedLcgRows(3, 9, 100, 1.0));
  std::vector<double> momentum;
  std::vector<double> weights(9);
  ASSERT_TRUE(
      AdaconsCoefficients({}, gram, &momentum, absl::MakeSpan(weights)));
  double sum = 0.0;
  for (int i = 0; i < 9; ++i) {
    sum += weights[i] * (std::sqrt(gram(i, i)) + 1e-8);
  }
  EXPECT_NEAR(sum, 1.0, 1e-14);
}

TEST(AdaconsTest, OneRowIsNormalised) {
  std::vector<double> momentum;
  std::vector<double> weights(1);
  ASSERT_TRUE(AdaconsCoefficients({}, MakeGram({{3, 4}}), &momentum,
                                  absl::MakeSpan(weights)));
  EXPECT_DOUBLE_EQ(weights[0], 1.0 / (5.0 + 1e-8));
}

TEST(AdaconsTest, GuardTakesTheMeanAndKeepsTheMomentum) {
  AdaconsOptions options;
  options.rescale = AdaconsRescale::kMeanNorm;  // must not touch the mean
  std::vector<double> momentum;
  const Rows rows = {{10, 0}, {-1, 0}, {-1, 0}, {-1, 0}};
  std::vector<double> weights(4);
  EXPECT_FALSE(AdaconsCoefficients(options, MakeGram(rows), &momentum,
                                   absl::MakeSpan(weights)));
  EXPECT_EQ(weights, std::vector<double>(4, 0.25));
  EXPECT_TRUE(momentum.empty());
}

TEST(AdaconsTest, GuardTakesTheMeanOfZeroRows) {
  std::vector<double> momentum;
  std::vector<double> weights(3);
  EXPECT_FALSE(AdaconsCoefficients({}, GramMatrix(3), &momentum,
                                   absl::MakeSpan(weights)));
  EXPECT_EQ(weights, std::vector<double>(3, 1.0 / 3.0));
}

TEST(AdaconsTest, GuardKeepsAPoisonedGramOutOfTheMomentum) {
  std::vector<double> momentum;
  momentum = {1.0, 2.0};
  GramMatrix gram(2);
  gram.Set(0, 0, 1.0);
  gram.Set(0, 1, std::numeric_limits<double>::infinity());
  gram.Set(1, 1, 1.0);
  std::vector<double> weights(2);
  EXPECT_FALSE(
      AdaconsCoefficients({}, gram, &momentum, absl::MakeSpan(weights)));
  EXPECT_EQ(momentum, (std::vector<double>{1.0, 2.0}));
}

TEST(AdaconsTest, TiesAreBrokenByRow) {
  AdaconsOptions options;
  options.beta = 0.5;
  std::vector<double> momentum;
  momentum = {1.0, 2.0, 3.0};
  const Rows rows = {{1, 0}, {1, 0}, {1, 0}};  // three equal alphas
  std::vector<double> weights(3);
  ASSERT_TRUE(AdaconsCoefficients(options, MakeGram(rows), &momentum,
                                  absl::MakeSpan(weights)));
  EXPECT_LT(weights[0], weights[1]);
  EXPECT_LT(weights[1], weights[2]);
}

TEST(AdaconsTest, MembershipChangeResamplesByQuantile) {
  // Quantiles (k + 1/2)/2 of four points lie halfway between neighbours.
  EXPECT_EQ(ResampleMomentum({1, 2, 4, 8}, 2), (std::vector<double>{1.5, 6}));
  // Ends are held; the identity is exact.
  EXPECT_EQ(ResampleMomentum({1, 3}, 4), (std::vector<double>{1, 1.5, 2.5, 3}));
  EXPECT_EQ(ResampleMomentum({1, 2, 5}, 3), (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(ResampleMomentum({7}, 3), (std::vector<double>{7, 7, 7}));
}

TEST(AdaconsTest, MomentumFollowsTheNumberOfRows) {
  std::vector<double> momentum;
  std::vector<double> four(4);
  ASSERT_TRUE(AdaconsCoefficients({}, MakeGram(BiasedLcgRows(1, 4, 30, 1.0)),
                                  &momentum, absl::MakeSpan(four)));
  const std::vector<double> before = ResampleMomentum(momentum, 3);
  const Rows rows = BiasedLcgRows(2, 3, 30, 1.0);
  std::vector<double> three(3);
  ASSERT_TRUE(AdaconsCoefficients({}, MakeGram(rows), &momentum,
                                  absl::MakeSpan(three)));
  reference::Vector expected_momentum(before.begin(), before.end());
  const reference::AdaconsStep expected = reference::Adacons(
      rows, 0.99L, 1e-8L, Rescale::kNone, &expected_momentum);
  EXPECT_LE(Error(rows, three, expected.direction), 1e-13);
  for (int k = 0; k < 3; ++k) {
    EXPECT_NEAR(momentum[k], static_cast<double>(expected_momentum[k]), 1e-13);
  }
}

}  // namespace
}  // namespace agg
