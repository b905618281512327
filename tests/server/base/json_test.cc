
#include "nlohmann/json.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/field_error.h"
#include "server/base/json.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

// All errors of reading `text` with `read`.
std::string Errors(const std::string& text, const JsonMembers::Read& read) {
  const Json json = Json::parse(text);
  FieldErrors errors;
  read(JsonMembers(json, "a.", &errors));
  return std::string(errors.status().message());
}

TEST(JsonMembersTest, DoublesReadBackWithTheirBits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0.0,        -0.0,        3.0,  0.1,
                                      1e300,      5e-324,      -2.5, kInfinity,
                                      -kInfinity, std::nan("")};
  Json json = Json::object();
  json["list"] = LosslessNumbers(values);
  json["one"] = LosslessNumber(1.0 / 3.0);
  FieldErrors errors;
  const Json back = Json::parse(JsonLine(json));
  const JsonMembers members(back, "", &errors);
  std::vector<double> read;
  members.Take("list", &read);
  double one = 0.0;
  members.Take("one", &one);
  EXPECT_TRUE(errors.empty()) << errors.status();
  EXPECT_EQ(one, 1.0 / 3.0);
  ASSERT_EQ(read.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(read[i] == values[i] ||
                (std::isnan(read[i]) && std::isnan(values[i])));
    EXPECT_EQ(std::signbit(read[i]), std::signbit(values[i]));
  }
}

TEST(JsonMembersTest, ReadsWhatIsThere) {
  std::string text;
  std::string bytes;
  bool truth = false;
  int32_t small = 0;
  uint64_t large = 0;
  std::vector<int64_t> list;
  std::vector<int32_t> inner;
  EXPECT_EQ(Errors(R"({"t": "x", "b": "AP8=", "y": true, "s": 2147483647,
                       "l": 18446744073709551615, "i": [1, 2],
                       "o": {"v": 5}, "q": [{"v": 6}, {"v": 7}], "z": null})",
                   [&](const JsonMembers& members) {
                     members.Take("t", &text);
                     members.TakeBytes("b", &bytes);
                     members.Take("y", &truth);
                     members.TakeInteger("s", &small);
                     members.TakeInteger("l", &large);
                     members.TakeIntegers("i", &list);
                     const auto read = [&](const JsonMembers& object) {
                       inner.push_back(0);
                       object.TakeInteger("v", &inner.back());
                     };
                     members.TakeObject("o", read);
                     members.TakeList("q", read);
                   }),
            "");
  EXPECT_EQ(text, "x");
  EXPECT_EQ(bytes, std::string("\0\xff", 2));
  EXPECT_TRUE(truth);
  EXPECT_EQ(small, 2147483647);
  EXPECT_EQ(large, 18446744073709551615u);
  EXPECT_THAT(list, ElementsAre(1, 2));
  EXPECT_THAT(inner, ElementsAre(5, 6, 7));
}

TEST(JsonMembersTest, NamesWhatIsWrongAndKeepsTheRest) {
  const auto error = [](const std::string& text) {
    int32_t number = 77;
    const std::string errors = Errors(text, [&](const JsonMembers& members) {
      members.TakeInteger("n", &number);
    });
    EXPECT_EQ(number, 77);
    return errors;
  };
  const std::string allowed = "; allowed: an integer from 0 to 2147483647";
  EXPECT_EQ(error("{}"), "a.n is missing" + allowed);
  EXPECT_EQ(error(R"({"n": "5"})"), "a.n is \"5\"" + allowed);
  EXPECT_EQ(error(R"({"n": -1})"), "a.n is -1" + allowed);
  EXPECT_EQ(error(R"({"n": 1.5})"), "a.n is 1.5" + allowed);
  EXPECT_EQ(error(R"({"n": 2147483648})"), "a.n is 2147483648" + allowed);
  EXPECT_EQ(error(R"({"n": null})"), "a.n is null" + allowed);
}

TEST(JsonMembersTest, NamesTheElement) {
  int32_t number = 0;
  const auto read = [&](const JsonMembers& members) {
    members.TakeList("q", [&](const JsonMembers& element) {
      element.TakeInteger("v", &number);
    });
  };
  EXPECT_EQ(Errors(R"({"q": [{"v": 1}, 5]})", read),
            "a.q[1] is 5; allowed: an object");
  EXPECT_EQ(Errors(R"({"q": [{"v": 1}, {"v": "x"}]})", read),
            "a.q[1].v is \"x\"; allowed: an integer from 0 to 2147483647");
  EXPECT_EQ(Errors(R"({"q": {}})", read),
            "a.q is {}; allowed: a list of objects");
}

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
