#include "server/combine/gram_matrix.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/step_scale.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

TEST(GramMatrixTest, UnpacksUpperTrianglesRowByRow) {
  const std::vector<double> packed = {1, 2, 3, 4, 5, 6};
  const GramMatrix gram = GramMatrix::FromPacked(3, packed, {});
  EXPECT_FALSE(gram.compensated());
  EXPECT_EQ(gram(0, 0), 1);
  EXPECT_EQ(gram(0, 2), 3);
  EXPECT_EQ(gram(2, 0), 3);
  EXPECT_EQ(gram(1, 1), 4);
  EXPECT_EQ(gram(1, 2), 5);
  EXPECT_EQ(gram(2, 2), 6);
  EXPECT_EQ(gram.lo(1, 2), 0.0);
  EXPECT_EQ(gram.Trace(), 11);
}

TEST(GramMatrixTest, GivesTheUpperTriangleByRows) {
  const GramMatrix gram =
      GramMatrix::FromPacked(3, std::vector<double>{1, 2, 3, 4, 5, 6}, {});
  EXPECT_THAT(gram.UpperRow(0), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(gram.UpperRow(1), testing::ElementsAre(4, 5));
  EXPECT_THAT(gram.UpperRow(2), testing::ElementsAre(6));
}

// What is kept packed reads as the dense matrix that was written.
TEST(GramMatrixTest, IsTheDenseMatrixThatWasSet) {
  for (const int num_rows : {1, 2, 7, 64}) {
    std::vector<double> dense(static_cast<size_t>(num_rows) * num_rows);
    GramMatrix gram(num_rows, true);
    for (int i = 0; i < num_rows; ++i) {
      for (int j = i; j < num_rows; ++j) {
        const double value = i * 1000.0 + j + 1.0 / 3.0;
        dense[i * num_rows + j] = dense[j * num_rows + i] = value;
        gram.Set((i + j) % 2 == 0 ? i : j, (i + j) % 2 == 0 ? j : i, value,
                 value * 1e-20);
      }
    }
    for (int i = 0; i < num_rows; ++i) {
      for (int j = 0; j < num_rows; ++j) {
        EXPECT_EQ(gram(i, j), dense[i * num_rows + j]);
        EXPECT_EQ(gram.lo(i, j), dense[i * num_rows + j] * 1e-20);
      }
    }
  }
}

TEST(GramMatrixTest, UnpacksLowParts) {
  const std::vector<double> hi = {1, 2, 3};
  const std::vector<double> lo = {1e-20, 2e-20, 3e-20};
  const GramMatrix gram = GramMatrix::FromPacked(2, hi, lo);
  EXPECT_TRUE(gram.compensated());
  EXPECT_EQ(gram.lo(1, 0), 2e-20);
  EXPECT_EQ(gram.lo(1, 1), 3e-20);
}

TEST(GramMatrixTest, AddsPlain) {
  GramMatrix sum = GramMatrix::FromPacked(2, std::vector<double>{1, 2, 3}, {});
  sum.Add(GramMatrix::FromPacked(2, std::vector<double>{10, 20, 30}, {}));
  EXPECT_EQ(sum(0, 0), 11);
  EXPECT_EQ(sum(1, 0), 22);
  EXPECT_EQ(sum(1, 1), 33);
}

TEST(GramMatrixTest, AddsCompensatedToAboutHundredBits) {
  const double thirds = 1.0 / 3.0;
  GramMatrix sum(1, true);
  __float128 exact = 0;
  for (int k = 0; k < 1000; ++k) {
    const double hi = k % 2 == 0 ? 1e16 * thirds : thirds;
    const double lo = hi * 0x1p-54 * thirds;
    GramMatrix term(1, true);
    term.Set(0, 0, hi, lo);
    sum.Add(term);
    exact += static_cast<__float128>(hi) + lo;
  }
  const __float128 value = static_cast<__float128>(sum(0, 0)) + sum.lo(0, 0);
  EXPECT_LE(static_cast<double>((value - exact) / exact), 1e-29);
  EXPECT_GE(static_cast<double>((value - exact) / exact), -1e-29);
}

TEST(GramMatrixTest, Compacts) {
  const GramMatrix gram =
      GramMatrix::FromPacked(3, std::vector<double>{1, 2, 3, 4, 5, 6}, {});
  const GramMatrix small = gram.Compact({0, 2});
  ASSERT_EQ(small.num_rows(), 2);
  EXPECT_EQ(small(0, 0), 1);
  EXPECT_EQ(small(0, 1), 3);
  EXPECT_EQ(small(1, 1), 6);
}

TEST(GramMatrixTest, ScalesRowsAndColumns) {
  GramMatrix gram =
      GramMatrix::FromPacked(2, std::vector<double>{4, 8, 16}, {});
  gram.Scale(std::vector<double>{0.5, 0.25});
  EXPECT_EQ(gram(0, 0), 1);
  EXPECT_EQ(gram(0, 1), 1);
  EXPECT_EQ(gram(1, 0), 1);
  EXPECT_EQ(gram(1, 1), 1);
}

TEST(GramMatrixTest, ScalingKeepsLowParts) {
  GramMatrix gram(1, true);
  gram.Set(0, 0, 1.0, 1e-20);
  const double scale = 1.0 / 3.0;  // no power of two
  gram.Scale(std::vector<double>{scale});
  const __float128 exact =
      (static_cast<__float128>(1.0) + 1e-20) * scale * scale;
  const __float128 value = static_cast<__float128>(gram(0, 0)) + gram.lo(0, 0);
  const __float128 error = value - exact;
  EXPECT_LE(static_cast<double>(error < 0 ? -error : error), 1e-32);
}

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
