#include "server/combine/gram_matrix.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

}  // namespace
}  // namespace agg
