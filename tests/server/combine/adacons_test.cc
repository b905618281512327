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
using reference::Unsort;

double Error(const Rows& rows, const std::vector<double>& weights,
             const reference::Vector& expected) {
  return static_cast<double>(reference::Distance(
             reference::WeightedSum(rows, weights), expected)) /
         BackwardScale(rows, weights);
}

void ExpectLikeReference(const AdaconsOptions& options, Rescale rescale,
                         Unsort unsort = Unsort::kScatter) {
  for (int num_rows = 1; num_rows <= 33; ++num_rows) {
    std::vector<double> momentum;
    reference::Vector expected_momentum;
    for (int step = 0; step < 4; ++step) {
      const Rows rows = BiasedLcgRows(10 * num_rows + step, num_rows, 40, 0.5);
      std::vector<double> weights(num_rows);
      const AdaconsResult result = AdaconsCoefficients(
          options, MakeGram(rows), &momentum, absl::MakeSpan(weights));
      const reference::AdaconsStep expected = reference::Adacons(
          rows, 0.99L, 1e-8L, rescale, unsort, &expected_momentum);
      EXPECT_EQ(result.fell_back, expected.fell_back);
      EXPECT_LE(Error(rows, weights, expected.direction), 1e-13)
          << num_rows << " rows, step " << step;
    }
  }
}

AdaconsOptions Rescaled(AdaconsRescale rescale) {
  AdaconsOptions options;
  options.rescale = rescale;
  return options;
}

AdaconsOptions Gathered() {
  AdaconsOptions options;
  options.unsort = AdaconsUnsort::kGather;
  return options;
}

TEST(AdaconsTest, MatchesVectors) { ExpectLikeReference({}, Rescale::kNone); }

TEST(AdaconsTest, MatchesVectorsRescaledByMeanNorm) {
  ExpectLikeReference(Rescaled(AdaconsRescale::kMeanNorm), Rescale::kMeanNorm);
}

TEST(AdaconsTest, MatchesVectorsRescaledToTheMean) {
  ExpectLikeReference(Rescaled(AdaconsRescale::kMatchMean),
                      Rescale::kMatchMean);
}

TEST(AdaconsTest, MatchesVectorsThatAreGathered) {
  ExpectLikeReference(Gathered(), Rescale::kNone, Unsort::kGather);
}

// Two rows' permutation is its own inverse.
TEST(AdaconsTest, GatherIsScatterForTwoRows) {
  const GramMatrix gram = MakeGram(BiasedLcgRows(7, 2, 30, 0.5));
  std::vector<double> scattered(2);
  std::vector<double> gathered(2);
  std::vector<double> momentum;
  AdaconsCoefficients({}, gram, &momentum, absl::MakeSpan(scattered));
  momentum.clear();
  AdaconsCoefficients(Gathered(), gram, &momentum, absl::MakeSpan(gathered));
  EXPECT_EQ(gathered, scattered);
}

TEST(AdaconsTest, AlphasSumToOne) {
  const GramMatrix gram = MakeGram(BiasedLcgRows(3, 9, 100, 1.0));
  std::vector<double> momentum;
  std::vector<double> weights(9);
  ASSERT_FALSE(AdaconsCoefficients({}, gram, &momentum, absl::MakeSpan(weights))
                   .fell_back);
  double sum = 0.0;
  for (int i = 0; i < 9; ++i) {
    sum += weights[i] * (std::sqrt(gram(i, i)) + 1e-8);
  }
  EXPECT_NEAR(sum, 1.0, 1e-14);
}

TEST(AdaconsTest, OneRowIsNormalised) {
  std::vector<double> momentum;
  std::vector<double> weights(1);
  ASSERT_FALSE(AdaconsCoefficients({}, MakeGram({{3, 4}}), &momentum,
                                   absl::MakeSpan(weights))
                   .fell_back);
  EXPECT_DOUBLE_EQ(weights[0], 1.0 / (5.0 + 1e-8));
}

TEST(AdaconsTest, GuardTakesTheMeanAndKeepsTheMomentum) {
  AdaconsOptions options;
  options.rescale = AdaconsRescale::kMeanNorm;  // must not touch the mean
  std::vector<double> momentum;
  const Rows rows = {{10, 0}, {-1, 0}, {-1, 0}, {-1, 0}};
  std::vector<double> weights(4);
  EXPECT_TRUE(AdaconsCoefficients(options, MakeGram(rows), &momentum,
                                  absl::MakeSpan(weights))
                  .fell_back);
  EXPECT_EQ(weights, std::vector<double>(4, 0.25));
  EXPECT_TRUE(momentum.empty());
}

TEST(AdaconsTest, GuardTakesTheMeanOfZeroRows) {
  std::vector<double> momentum;
  std::vector<double> weights(3);
  EXPECT_TRUE(
      AdaconsCoefficients({}, GramMatrix(3), &momentum, absl::MakeSpan(weights))
          .fell_back);
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
  EXPECT_TRUE(AdaconsCoefficients({}, gram, &momentum, absl::MakeSpan(weights))
                  .fell_back);
  EXPECT_EQ(momentum, (std::vector<double>{1.0, 2.0}));
}

TEST(AdaconsTest, TiesAreBrokenByRow) {
  AdaconsOptions options;
  options.beta = 0.5;
  std::vector<double> momentum;
  momentum = {1.0, 2.0, 3.0};
  const Rows rows = {{1, 0}, {1, 0}, {1, 0}};  // three equal alphas
  std::vector<double> weights(3);
  ASSERT_FALSE(AdaconsCoefficients(options, MakeGram(rows), &momentum,
                                   absl::MakeSpan(weights))
                   .fell_back);
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
  ASSERT_FALSE(AdaconsCoefficients({}, MakeGram(BiasedLcgRows(1, 4, 30, 1.0)),
                                   &momentum, absl::MakeSpan(four))
                   .fell_back);
  const std::vector<double> before = ResampleMomentum(momentum, 3);
  const Rows rows = BiasedLcgRows(2, 3, 30, 1.0);
  std::vector<double> three(3);
  ASSERT_FALSE(
      AdaconsCoefficients({}, MakeGram(rows), &momentum, absl::MakeSpan(three))
          .fell_back);
  reference::Vector expected_momentum(before.begin(), before.end());
  const reference::AdaconsStep expected = reference::Adacons(
      rows, 0.99L, 1e-8L, Rescale::kNone, Unsort::kScatter, &expected_momentum);
  EXPECT_LE(Error(rows, three, expected.direction), 1e-13);
  for (int k = 0; k < 3; ++k) {
    EXPECT_NEAR(momentum[k], static_cast<double>(expected_momentum[k]), 1e-13);
  }
}

// Pairs of opposite rows, but for noise of this size.
Rows NearlyOpposite(uint64_t seed, int num_pairs, double noise) {
  Rows rows = NormalRows(seed, 2 * num_pairs, 500);
  for (int pair = 0; pair < num_pairs; ++pair) {
    const std::vector<double>& row = rows[2 * pair];
    std::vector<double>& other = rows[2 * pair + 1];
    for (size_t k = 0; k < row.size(); ++k) {
      other[k] = static_cast<float>(-row[k] + noise * other[k]);
    }
  }
  return rows;
}

// The result's error beside its length, and kappa.
struct Measured {
  double error;
  double kappa;
};

Measured Measure(const AdaconsOptions& options, const Rows& rows,
                 const GramMatrix& gram, const reference::AdaconsStep& step) {
  std::vector<double> momentum;
  std::vector<double> weights(rows.size());
  const AdaconsResult result =
      AdaconsCoefficients(options, gram, &momentum, absl::MakeSpan(weights));
  EXPECT_EQ(result.fell_back, step.fell_back);
  return {static_cast<double>(
              reference::Distance(reference::WeightedSum(rows, weights),
                                  step.direction) /
              reference::Norm(step.direction)),
          result.kappa};
}

// Where the rows nearly cancel the plain matrix gives only some digits, and
// kappa says so; the compensated one gives them all.
TEST(AdaconsTest, ACompensatedMatrixKeepsTheDigitsOfOppositeRows) {
  double plain_error = 0.0;
  double exact_error = 0.0;
  int num_fallbacks = 0;
  for (int seed = 0; seed < 20; ++seed) {
    for (const Rescale rescale : {Rescale::kNone, Rescale::kMatchMean}) {
      const AdaconsOptions options =
          Rescaled(rescale == Rescale::kNone ? AdaconsRescale::kNone
                                             : AdaconsRescale::kMatchMean);
      const Rows rows = NearlyOpposite(seed, 1 + seed % 3, 1e-6);
      reference::Vector momentum;
      const reference::AdaconsStep step = reference::Adacons(
          rows, 0.99L, 1e-8L, rescale, Unsort::kScatter, &momentum);
      num_fallbacks += step.fell_back ? 1 : 0;
      const Measured exact =
          Measure(options, rows, MakeCompensatedGram(rows), step);
      exact_error = std::fmax(exact_error, exact.error);
      if (step.fell_back) continue;
      const Measured plain = Measure(options, rows, MakeGram(rows), step);
      plain_error = std::fmax(plain_error, plain.error);
      EXPECT_GT(plain.kappa, 1e10) << seed;
      EXPECT_NEAR(exact.kappa, plain.kappa, 0.1 * exact.kappa) << seed;
    }
  }
  EXPECT_LT(num_fallbacks, 10);
  EXPECT_GT(plain_error, 1e-5)
      << "the plain matrix is good enough: what is it for?";
  EXPECT_LE(exact_error, 1e-9);
}

TEST(AdaconsTest, OrdinaryRowsDoNotCancel) {
  for (const int num_rows : {1, 2, 8, 64}) {
    std::vector<double> momentum;
    std::vector<double> weights(num_rows);
    const AdaconsResult result =
        AdaconsCoefficients({}, MakeGram(NormalRows(num_rows, num_rows, 500)),
                            &momentum, absl::MakeSpan(weights));
    EXPECT_GE(result.kappa, 1.0);
    EXPECT_LT(result.kappa, 1e4) << num_rows;
  }
}

// A round that cancels adds little to the momentum of rounds that do not.
TEST(AdaconsTest, KappaCountsTheRoundsShareOfTheMomentum) {
  const GramMatrix gram = MakeGram(NearlyOpposite(1, 1, 1e-6));
  std::vector<double> weights(2);
  std::vector<double> momentum;
  momentum = {10.0, 20.0};
  const AdaconsResult result =
      AdaconsCoefficients({}, gram, &momentum, absl::MakeSpan(weights));
  EXPECT_FALSE(result.fell_back);
  EXPECT_LT(result.kappa, 100.0);
}

TEST(AdaconsTest, ExactOppositesHaveInfiniteKappaAndZeroRowsHaveNone) {
  std::vector<double> momentum;
  std::vector<double> weights(2);
  const AdaconsResult opposite = AdaconsCoefficients(
      {}, MakeGram({{1, 2}, {-1, -2}}), &momentum, absl::MakeSpan(weights));
  EXPECT_TRUE(opposite.fell_back);
  EXPECT_TRUE(std::isinf(opposite.kappa));
  EXPECT_EQ(
      AdaconsCoefficients({}, GramMatrix(2), &momentum, absl::MakeSpan(weights))
          .kappa,
      1.0);
}

}  // namespace
}  // namespace agg
