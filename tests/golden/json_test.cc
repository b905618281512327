#include "tests/golden/json.h"

#include <cmath>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(JsonTest, ReadsValues) {
  const auto json = Json::Parse(
      "{\"a\": [1, -2.5e-3, NaN, -Infinity, null], \"b\": {\"c\": true, "
      "\"d\": false}, \"s\": \"x\\\"y\", \"e\": [], \"f\": {}}");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["a"][0].number(), 1.0);
  EXPECT_EQ((*json)["a"][1].number(), -2.5e-3);
  EXPECT_TRUE(std::isnan((*json)["a"][2].number()));
  EXPECT_EQ((*json)["a"][3].number(), -INFINITY);
  EXPECT_TRUE((*json)["a"][4].is_null());
  EXPECT_TRUE((*json)["b"]["c"].boolean());
  EXPECT_FALSE((*json)["b"]["d"].boolean());
  EXPECT_EQ((*json)["s"].string(), "x\"y");
  EXPECT_TRUE((*json)["e"].array().empty());
  EXPECT_TRUE((*json)["f"].members().empty());
  EXPECT_FALSE(json->Has("z"));
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "[1] 2", "nul", "1e",
                           "\"abc", "{\"a\":}", "[1 2]"}) {
    EXPECT_FALSE(Json::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace agg
