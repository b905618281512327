#include "server/base/json.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(JsonTest, MembersKeepTheirOrder) {
  Json json;
  json["b"] = -1;
  json["a"] = {true, nullptr, Json::object(), Json::array()};
  json["c"]["d"] = "x";
  EXPECT_EQ(CompactJson(json),
            "{\"b\":-1,\"a\":[true,null,{},[]],\"c\":{\"d\":\"x\"}}");
}

TEST(JsonTest, RoundedNumbersHaveSixDigits) {
  EXPECT_EQ(CompactJson(RoundedNumbers({0.5, -0.25, 1e300, 1.0 / 3.0, 3.0,
                                        1234567.0, 1e-7, kInf, -kInf, kNan})),
            "[0.5,-0.25,1e+300,0.333333,3,1234570,1e-07,null,null,null]");
}

TEST(JsonTest, ExactNumbersReadBack) {
  EXPECT_EQ(CompactJson(ExactNumbers({0.1, 1.0 / 3.0, 4.0, -7.0, 1e300, kNan,
                                      kInf, 9007199254740991.0})),
            "[0.1,0.3333333333333333,4,-7,1e+300,null,null,"
            "9007199254740991]");
  const double least = std::numeric_limits<double>::denorm_min();
  for (const double value : {0.1 + 0.2, least, -0.0, 0x1p60, 0x1.8p-300}) {
    const Json back = Json::parse(CompactJson(ExactNumber(value)));
    EXPECT_EQ(back.get<double>(), value);
  }
}

TEST(JsonTest, StringsCannotGetOut) {
  const Json json = {"</script><!--\" \\ & \n\x7f\x01",
                     std::string("\xff\xfe nul:\0.", 9),
                     "\xe2\x80\xa8 \xc3\xa9"};
  EXPECT_EQ(CompactJson(json),
            "[\"\\u003c/script\\u003e\\u003c!--\\\" \\\\ \\u0026 "
            "\\n\\u007f\\u0001\",\"\xef\xbf\xbd\xef\xbf\xbd nul:\\u0000.\","
            "\"\\u2028 \xc3\xa9\"]");
}

TEST(JsonTest, LinesHaveSpaces) {
  Json json;
  json["step"] = 1;
  json["gram"] = {{1, 2}, {2, 3}};
  json["text"] = "a,\nb: c";
  json["empty"] = Json::array();
  EXPECT_EQ(JsonLine(json),
            "{\"step\": 1, \"gram\": [[1, 2], [2, 3]], "
            "\"text\": \"a,\\nb: c\", \"empty\": []}");
}

}  // namespace
}  // namespace agg
