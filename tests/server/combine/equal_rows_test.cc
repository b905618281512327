#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/outliers.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EqualRowsTest, FindsGroups) {
  Rows rows = NormalRows(1, 6, 50);
  EXPECT_THAT(EqualRows(MakeGram(rows)), IsEmpty());
  rows[4] = rows[1];
  rows[5] = rows[2];
  rows[0] = rows[1];
  EXPECT_THAT(EqualRows(MakeGram(rows)),
              ElementsAre(ElementsAre(0, 1, 4), ElementsAre(2, 5)));
}

TEST(EqualRowsTest, NearlyIsEnoughAtAnyLength) {
  for (const double length : {1e-40, 1.0, 1e30}) {
    Rows rows = NormalRows(2, 2, 400);
    for (int k = 0; k < 400; ++k) {
      rows[0][k] *= length;
      rows[1][k] = rows[0][k] * (k % 2 == 0 ? 1.001 : 0.999);
    }
    EXPECT_THAT(EqualRows(MakeGram(rows)), ElementsAre(ElementsAre(0, 1)));
    for (int k = 0; k < 400; ++k) {
      rows[1][k] = rows[0][k] * (k % 2 == 0 ? 1.01 : 0.99);
    }
    EXPECT_THAT(EqualRows(MakeGram(rows)), IsEmpty());
  }
}

TEST(EqualRowsTest, OppositeParallelAndZeroRowsAreNotEqual) {
  EXPECT_THAT(EqualRows(MakeGram({{1, 2}, {-1, -2}, {2, 4}, {0, 0}, {0, 0}})),
              IsEmpty());
  EXPECT_THAT(EqualRows(MakeGram({{1, 2}})), IsEmpty());
  EXPECT_THAT(EqualRows(GramMatrix()), IsEmpty());
}

}  // namespace
}  // namespace agg
