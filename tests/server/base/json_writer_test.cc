#include "server/base/json_writer.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(JsonWriterTest, Nests) {
  JsonWriter json;
  json.BeginObject();
  json.Key("a").Integer(-1);
  json.Key("b").BeginArray().Bool(true).Null().BeginObject().EndObject();
  json.BeginArray().EndArray().EndArray();
  json.Key("c").BeginObject().Key("d").String("x").EndObject();
  json.Key("e").Raw("[7]");
  json.EndObject();
  EXPECT_EQ(json.Take(),
            "{\"a\":-1,\"b\":[true,null,{},[]],\"c\":{\"d\":\"x\"},"
            "\"e\":[7]}");
  json.BeginArray().EndArray();
  EXPECT_EQ(json.Take(), "[]");
}

TEST(JsonWriterTest, NumbersThatAreNone) {
  JsonWriter json;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  json.Numbers({0.5, -0.25, 1e300, kInf, -kInf,
                std::numeric_limits<double>::quiet_NaN(), 3.0});
  EXPECT_EQ(json.Take(), "[0.5,-0.25,1e+300,null,null,null,3]");
}

TEST(JsonWriterTest, StringsCannotGetOut) {
  JsonWriter json;
  json.BeginArray();
  json.String("</script><!--\" \\ & \n\x7f\x01");
  json.String(std::string("\xff\xfe nul:\0.", 9));
  json.String("\xe2\x80\xa8 \xc3\xa9");
  json.EndArray();
  EXPECT_EQ(json.Take(),
            "[\"\\u003c/script\\u003e\\u003c!--\\\" \\\\ \\u0026 "
            "\\u000a\\u007f\\u0001\",\"\xef\xbf\xbd\xef\xbf\xbd nul:\\u0000.\","
            "\"\xe2\x80\xa8 \xc3\xa9\"]");
}

}  // namespace
}  // namespace agg
