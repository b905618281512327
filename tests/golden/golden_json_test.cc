#include "tests/golden/golden_json.h"

#include <cmath>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

TEST(GoldenJsonTest, NumbersMayBeInfiniteOrUndefined) {
  EXPECT_EQ(GoldenNumber(Json(-2.5e-3)), -2.5e-3);
  EXPECT_EQ(GoldenNumber(Json(3)), 3.0);
  EXPECT_EQ(GoldenNumber(Json("Infinity")), INFINITY);
  EXPECT_EQ(GoldenNumber(Json("-Infinity")), -INFINITY);
  EXPECT_TRUE(std::isnan(GoldenNumber(Json("NaN"))));
  EXPECT_ANY_THROW(GoldenNumber(Json("many")));
  EXPECT_ANY_THROW(GoldenNumber(Json()));
}

TEST(GoldenJsonDeathTest, AFileThatIsNotThereEndsTheTest) {
  EXPECT_DEATH(ReadGolden("no/such/file.json"), "no/such/file.json");
}

}  // namespace
}  // namespace agg
