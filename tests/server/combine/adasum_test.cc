#include "server/combine/adasum.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Solve(const GramMatrix& gram, AdasumVariant variant,
                          AdasumResult* result = nullptr) {
  std::vector<double> weights(gram.num_rows());
  AdasumSolver solver;
  const AdasumResult solved =
      solver.Solve(gram, variant, absl::MakeSpan(weights));
  if (result != nullptr) *result = solved;
  return weights;
}

// Relative to sum |w| ||g||.
double Error(const Rows& rows, const std::vector<double>& weights,
             const reference::Vector& expected) {
  return static_cast<double>(reference::Distance(
             reference::WeightedSum(rows, weights), expected)) /
         BackwardScale(rows, weights);
}

TEST(AdasumTest, MatchesTheTreeForEveryNumberOfRows) {
  for (int num_rows = 1; num_rows <= 33; ++num_rows) {
    const Rows rows = BiasedLcgRows(100 + num_rows, num_rows, 57, 0.3);
    AdasumResult result;
    const std::vector<double> weights =
        Solve(MakeGram(rows), AdasumVariant::kPlain, &result);
    const reference::Vector expected = reference::AdasumTree(rows);
    EXPECT_LE(Error(rows, weights, expected), 1e-14) << num_rows;
    const double norm_squared =
        static_cast<double>(reference::NormSquared(expected));
    EXPECT_NEAR(result.norm_squared, norm_squared, 1e-12 * norm_squared);
  }
}

TEST(AdasumTest, CountedMatchesTheTree) {
  for (int num_rows = 1; num_rows <= 33; ++num_rows) {
    Rows rows = BiasedLcgRows(200 + num_rows, num_rows, 57, 0.3);
    if (num_rows > 4) rows[3].assign(57, 0.0);  // not counted
    const std::vector<double> weights =
        Solve(MakeGram(rows), AdasumVariant::kCounted);
    EXPECT_LE(Error(rows, weights, reference::AdasumCountedTree(rows)), 1e-14)
        << num_rows;
  }
}

TEST(AdasumTest, ParallelRowsGiveTheirPlainOrCountedMean) {
  const Rows three = {{1, 0}, {2, 0}, {3, 0}};
  EXPECT_NEAR(static_cast<double>(reference::WeightedSum(
                  three, Solve(MakeGram(three), AdasumVariant::kPlain))[0]),
              2.25, 1e-14);
  EXPECT_NEAR(static_cast<double>(reference::WeightedSum(
                  three, Solve(MakeGram(three), AdasumVariant::kCounted))[0]),
              2.0, 1e-14);
  const Rows five = {{2, 0}, {1, 0}, {3, 0}, {4, 0}, {10, 0}};
  EXPECT_NEAR(static_cast<double>(reference::WeightedSum(
                  five, Solve(MakeGram(five), AdasumVariant::kPlain))[0]),
              6.25, 1e-14);
  EXPECT_NEAR(static_cast<double>(reference::WeightedSum(
                  five, Solve(MakeGram(five), AdasumVariant::kCounted))[0]),
              4.0, 1e-14);
}

TEST(AdasumTest, OneRowIsItself) {
  AdasumResult result;
  EXPECT_EQ(Solve(MakeGram({{3, 4}}), AdasumVariant::kPlain, &result),
            std::vector<double>{1.0});
  EXPECT_EQ(result.norm_squared, 25.0);
  EXPECT_EQ(result.kappa, 1.0);
}

TEST(AdasumTest, AllZeroRowsHaveWeightOneAndNoCancellation) {
  AdasumResult result;
  EXPECT_EQ(Solve(GramMatrix(3), AdasumVariant::kPlain, &result),
            std::vector<double>(3, 1.0));
  EXPECT_EQ(result.norm_squared, 0.0);
  EXPECT_EQ(result.kappa, 1.0);
  EXPECT_EQ(Solve(GramMatrix(3), AdasumVariant::kCounted),
            std::vector<double>(3, 1.0));
}

TEST(AdasumTest, ScalarsOfAnySizeAreAveraged) {
  const Rows tiny = {{1e-30}, {5}};
  EXPECT_NEAR(static_cast<double>(reference::WeightedSum(
                  tiny, Solve(MakeGram(tiny), AdasumVariant::kPlain))[0]),
              2.5, 1e-14);
  const Rows zero = {{0}, {5}};
  EXPECT_EQ(static_cast<double>(reference::WeightedSum(
                zero, Solve(MakeGram(zero), AdasumVariant::kPlain))[0]),
            5.0);
}

TEST(AdasumTest, OppositeRowsCancelExactlyAndShowInKappa) {
  const Rows rows = {{1, 2}, {-1, -2}, {0, 3}, {1, 1}};
  AdasumResult result;
  const std::vector<double> weights =
      Solve(MakeGram(rows), AdasumVariant::kPlain, &result);
  EXPECT_EQ(weights[0], 1.5);
  EXPECT_EQ(weights[1], 1.5);
  EXPECT_EQ(result.kappa, kInfinity);
  EXPECT_LE(Error(rows, weights, reference::AdasumTree(rows)), 1e-15);
  const std::vector<double> compensated =
      Solve(MakeCompensatedGram(rows), AdasumVariant::kPlain, &result);
  EXPECT_EQ(compensated, weights);
}

// Near-opposite pairs: the plain Gram is far off, the compensated one is as
// good as the tree on vectors (server/combine/README.md 3.5).
TEST(AdasumTest, CompensatedGramRepairsNearOppositePairs) {
  for (const int num_rows : {4, 8}) {
    for (const double noise : {1e-4, 1e-6, 3e-7}) {
      Rows rows = NormalRows(num_rows, num_rows, 2000);
      for (int i = 0; i < num_rows; i += 2) {
        for (size_t k = 0; k < rows[i].size(); ++k) {
          rows[i + 1][k] =
              static_cast<float>(-rows[i][k] + noise * rows[i + 1][k]);
        }
      }
      AdasumResult plain;
      Solve(MakeGram(rows), AdasumVariant::kPlain, &plain);
      const std::vector<double> weights =
          Solve(MakeCompensatedGram(rows), AdasumVariant::kPlain);
      const reference::Vector expected = reference::AdasumTree(rows);
      const double error = static_cast<double>(
          reference::Distance(reference::WeightedSum(rows, weights), expected) /
          reference::Norm(expected));
      EXPECT_GE(plain.kappa, 1e7);
      EXPECT_LE(error, 1e-8) << num_rows << " rows, noise " << noise;
    }
  }
}

TEST(AdasumTest, KappaOfOneEqualNormPair) {
  // K/H of the pair's result, which only a third row makes an input.
  const double cosine = -0.9;
  const double sine = std::sqrt(1.0 - cosine * cosine);
  const Rows rows = {{1, 0, 0}, {cosine, sine, 0}, {0, 0, 1}};
  AdasumResult result;
  Solve(MakeGram(rows), AdasumVariant::kPlain, &result);
  const double weight = 1.0 - cosine / 2.0;
  const double norm = 2.0 * weight * weight * (1.0 + cosine);
  const double absolute = 2.0 * weight * weight * (1.0 - cosine);
  EXPECT_NEAR(result.kappa, absolute / norm, 1e-12 * result.kappa);
}

TEST(AdasumTest, ASolverCanBeUsedAgainForAnotherSize) {
  AdasumSolver solver;
  for (const int num_rows : {8, 3, 33, 1, 5}) {
    const GramMatrix gram = MakeGram(LcgRows(7, num_rows, 20));
    std::vector<double> weights(num_rows);
    solver.Solve(gram, AdasumVariant::kPlain, absl::MakeSpan(weights));
    EXPECT_EQ(weights, Solve(gram, AdasumVariant::kPlain));
  }
}

}  // namespace
}  // namespace agg
