#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/step_scale.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

// The sums of a dense matrix, term by term in the order of the columns.
std::vector<double> DenseProduct(const GramMatrix& gram,
                                 const std::vector<double>& w) {
  std::vector<double> product;
  for (int i = 0; i < gram.num_rows(); ++i) {
    double sum = 0.0;
    for (int j = 0; j < gram.num_rows(); ++j) sum += gram(i, j) * w[j];
    product.push_back(sum);
  }
  return product;
}

TEST(GramStatsTest, ProductsHaveTheBitsOfADenseMatrix) {
  for (const int num_rows : {1, 2, 5, 33, 64}) {
    const Rows rows = NormalRows(static_cast<uint64_t>(num_rows), num_rows, 9);
    const GramMatrix gram = MakeGram(rows);
    std::vector<double> w;
    for (int i = 0; i < num_rows; ++i) w.push_back(rows[i][0] / 3.0);
    const std::vector<double> expected = DenseProduct(gram, w);
    EXPECT_EQ(Product(gram, w), expected);
    double form = 0.0;
    for (int i = 0; i < num_rows; ++i) form += w[i] * expected[i];
    EXPECT_EQ(QuadraticForm(gram, w), form);
    double sum = 0.0;
    for (const double row :
         DenseProduct(gram, std::vector<double>(num_rows, 1.0))) {
      sum += row;
    }
    EXPECT_EQ(SumOfEntries(gram), sum);
  }
}

TEST(GramStatsTest, FormsMatchVectors) {
  const Rows rows = NormalRows(1, 6, 40);
  const GramMatrix gram = MakeGram(rows);
  const std::vector<double> u = {1, -2, 0.5, 3, 0, 1};
  const std::vector<double> w = {0, 1, 1, -1, 2, 0.25};
  const reference::Vector left = reference::WeightedSum(rows, u);
  const reference::Vector right = reference::WeightedSum(rows, w);
  EXPECT_NEAR(BilinearForm(gram, u, w),
              static_cast<double>(reference::Dot(left, right)), 1e-11);
  EXPECT_NEAR(QuadraticForm(gram, u),
              static_cast<double>(reference::NormSquared(left)), 1e-11);
  EXPECT_NEAR(SumOfEntries(gram),
              static_cast<double>(reference::NormSquared(reference::Sum(rows))),
              1e-11);
}

TEST(GramStatsTest, DiversityMatchesVectorsAndHasItsLimits) {
  const Rows rows = NormalRows(2, 6, 40);
  EXPECT_NEAR(GradientDiversity(MakeGram(rows)),
              static_cast<double>(reference::Diversity(rows)), 1e-13);
  EXPECT_EQ(GradientDiversity(MakeGram({{1, 2}, {-1, -2}})),
            std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(GradientDiversity(GramMatrix(2))));
}

TEST(GramStatsTest, OrthogonalityIsClampedAndUndefinedForZeroRows) {
  EXPECT_EQ(Orthogonality(1.0, 2.0), 0.5);
  EXPECT_EQ(Orthogonality(2.0000000000000004, 2.0), 1.0);
  EXPECT_TRUE(std::isnan(Orthogonality(0.0, 0.0)));
}

TEST(GramStatsTest, CosinesSkipZeroRows) {
  const Rows rows = {{1, 0}, {0, 0}, {1, 1}, {-2, 0}};
  const PairwiseCosines cosines = ComputeCosines(MakeGram(rows));
  EXPECT_NEAR(cosines.mean,
              static_cast<double>(reference::MeanPairwiseCosine(rows)), 1e-15);
  EXPECT_EQ(cosines.min, -1.0);
  const double half = std::sqrt(0.5);
  EXPECT_NEAR(cosines.row_means[0], (half - 1) / 2, 1e-15);
  EXPECT_TRUE(std::isnan(cosines.row_means[1]));
  EXPECT_NEAR(cosines.row_means[2], 0.0, 1e-15);
}

TEST(GramStatsTest, CosinesNeedAPair) {
  const PairwiseCosines cosines = ComputeCosines(MakeGram({{1, 0}, {0, 0}}));
  EXPECT_TRUE(std::isnan(cosines.mean));
  EXPECT_TRUE(std::isnan(cosines.min));
  EXPECT_TRUE(std::isnan(cosines.row_means[0]));
}

TEST(GramStatsTest, EigenvaluesOfAKnownMatrix) {
  // The 1D Laplacian: 2 - 2 cos(k pi / (n + 1)).
  const int n = 12;
  GramMatrix gram(n);
  for (int i = 0; i < n; ++i) gram.Set(i, i, 2.0);
  for (int i = 0; i + 1 < n; ++i) gram.Set(i, i + 1, -1.0);
  const std::vector<double> eigenvalues = Eigenvalues(gram);
  for (int k = 1; k <= n; ++k) {
    EXPECT_NEAR(eigenvalues[k - 1], 2 - 2 * std::cos(k * M_PI / (n + 1)),
                1e-14);
  }
}

TEST(GramStatsTest, EigenvaluesKeepTraceAndSquares) {
  const GramMatrix gram = MakeGram(BiasedLcgRows(4, 33, 50, 1.0));
  double trace = 0.0;
  double squares = 0.0;
  for (const double eigenvalue : Eigenvalues(gram)) {
    EXPECT_GE(eigenvalue, -1e-12 * gram.Trace());
    trace += eigenvalue;
    squares += eigenvalue * eigenvalue;
  }
  double expected = 0.0;
  for (int i = 0; i < 33; ++i) {
    for (int j = 0; j < 33; ++j) expected += gram(i, j) * gram(i, j);
  }
  EXPECT_NEAR(trace, gram.Trace(), 1e-12 * trace);
  EXPECT_NEAR(squares, expected, 1e-12 * squares);
}

TEST(GramStatsTest, EffectiveRankGoesFromOneToP) {
  EXPECT_NEAR(EffectiveRank(MakeGram({{1, 2}, {1, 2}, {2, 4}})), 1.0, 1e-12);
  EXPECT_NEAR(EffectiveRank(MakeGram({{0, 5, 0}, {5, 0, 0}, {0, 0, 5}})), 3.0,
              1e-14);
  // Eigenvalues 3 and 1.
  const double expected =
      std::exp(-0.75 * std::log(0.75) - 0.25 * std::log(0.25));
  GramMatrix gram(2);
  gram.Set(0, 0, 2);
  gram.Set(1, 1, 2);
  gram.Set(0, 1, 1);
  EXPECT_NEAR(EffectiveRank(gram), expected, 1e-14);
  for (const double scale : {1e-150, 1e150}) {  // squares would leave the range
    GramMatrix scaled = gram;
    scaled.Scale(std::vector<double>(2, std::sqrt(scale)));
    EXPECT_NEAR(EffectiveRank(scaled), expected, 1e-13);
  }
  EXPECT_TRUE(std::isnan(EffectiveRank(GramMatrix(3))));
}

TEST(ClippingTest, Factor) {
  EXPECT_EQ(ClipFactor(10.0, 0.0), 1.0);
  EXPECT_EQ(ClipFactor(10.0, 2.5), 0.25);
  EXPECT_EQ(ClipFactor(2.5, 2.5), 1.0);
  EXPECT_EQ(ClipFactor(0.0, 1.0), 1.0);
}

}  // namespace
}  // namespace agg
