#include "server/tools/combine_step.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

NpyMatrix Matrix(const Rows& rows) {
  NpyMatrix matrix;
  matrix.num_rows = static_cast<int>(rows.size());
  matrix.num_elements = static_cast<int64_t>(rows[0].size());
  matrix.is_float64 = true;
  for (const std::vector<double>& row : rows) {
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  return matrix;
}

Rows DoubleRows(int num_rows, int num_elements) {
  Rows rows = NormalRows(1, num_rows, num_elements);
  for (std::vector<double>& row : rows) {
    for (double& value : row) value *= 1.0 + 0x1p-40;  // beyond float32
  }
  return rows;
}

TEST(ExactGramTest, EveryPrecisionMatchesQuadDotProducts) {
  const Rows rows = DoubleRows(5, 5000);  // more than a block
  const NpyMatrix matrix = Matrix(rows);
  const RowScales scales = ChooseScales(matrix);
  EXPECT_EQ(scales.unit, 0);
  const GramMatrix expected = MakeCompensatedGram(rows);
  const GramMatrix plain = ComputeGram(matrix, scales, GramPrecision::kDouble);
  const GramMatrix rounded =
      ComputeGram(matrix, scales, GramPrecision::kRounded);
  const GramMatrix exact =
      ComputeGram(matrix, scales, GramPrecision::kCompensated);
  EXPECT_TRUE(exact.compensated());
  EXPECT_FALSE(rounded.compensated());
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 5; ++j) {
      EXPECT_NEAR(plain(i, j), expected(i, j), 1e-10);
      EXPECT_EQ(rounded(i, j), expected(i, j));
      EXPECT_EQ(exact(i, j), expected(i, j));
      EXPECT_NEAR(exact.lo(i, j), expected.lo(i, j), 1e-25);
    }
  }
}

TEST(ExactGramTest, RowsOfAnyMagnitudeKeepTheirInnerProducts) {
  const Rows rows = DoubleRows(3, 100);
  const GramMatrix expected = MakeCompensatedGram(rows);
  for (const int exponent : {-1020, -300, 300, 1015}) {
    Rows scaled = rows;
    for (std::vector<double>& row : scaled) {
      for (double& value : row) value = std::ldexp(value, exponent);
    }
    const NpyMatrix matrix = Matrix(scaled);
    const RowScales scales = ChooseScales(matrix);
    EXPECT_NEAR(scales.unit, exponent, 3);
    const GramMatrix gram =
        ComputeGram(matrix, scales, GramPrecision::kRounded);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        const double value =
            std::ldexp(gram(i, j), 2 * (scales.unit - exponent));
        EXPECT_NEAR(value, expected(i, j), 1e-11) << exponent;
      }
    }
  }
}

TEST(ExactGramTest, NonFiniteAndZeroRows) {
  const NpyMatrix matrix = Matrix({{1, 2}, {kNan, 1}, {0, 0}, {INFINITY, 0}});
  const RowScales scales = ChooseScales(matrix);
  EXPECT_EQ(scales.finite, (std::vector<bool>{true, false, true, false}));
  const GramMatrix gram = ComputeGram(matrix, scales, GramPrecision::kRounded);
  EXPECT_EQ(gram(0, 0), 5.0);
  EXPECT_EQ(gram(0, 2), 0.0);
  EXPECT_EQ(gram(2, 2), 0.0);
  EXPECT_TRUE(std::isnan(gram(1, 1)));
  EXPECT_TRUE(std::isnan(gram(3, 3)));
  EXPECT_TRUE(std::isnan(gram(0, 1)));
}

TEST(ExactGramTest, CombinesInMoreThanDouble) {
  const NpyMatrix matrix = Matrix({{1e16, 1}, {1, 2}, {-1e16, kNan}});
  EXPECT_EQ(CombineRows(matrix, std::vector<double>{1, 1, 0}),
            (std::vector<double>{1e16 + 1, 3}));
  const NpyMatrix cancelling = Matrix({{1e16}, {1}, {-1e16}});
  EXPECT_EQ(CombineRows(cancelling, std::vector<double>{1, 1, 1}),
            std::vector<double>{1.0});
  EXPECT_EQ(CombineRows(Matrix({{1e300}}), std::vector<double>{1e300}),
            std::vector<double>{INFINITY});
}

}  // namespace
}  // namespace agg
