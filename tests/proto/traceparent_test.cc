#include "proto/traceparent.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace agg {
namespace {

constexpr char kGood[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

// kGood with one character replaced.
std::string With(size_t at, char c) {
  std::string value = kGood;
  value[at] = c;
  return value;
}

TEST(TraceparentTest, TakesWhatTheStandardSays) {
  EXPECT_TRUE(IsTraceparent(kGood));
  EXPECT_TRUE(
      IsTraceparent("00-00000000000000000000000000000001-0000000000000001-00"));
  // A version to come may have more behind a dash.
  EXPECT_TRUE(
      IsTraceparent("cc" + std::string(kGood).substr(2) + "-what.else"));
}

TEST(TraceparentTest, RefusesEverythingElse) {
  const std::string good = kGood;
  for (const std::string& bad : std::vector<std::string>{
           std::string(),
           good.substr(1),
           good.substr(0, 54),
           good + "0",
           good + "-01",                    // version 00 has no more
           "ff" + good.substr(2),           // no version
           "cc" + good.substr(2) + "x",     // no dash
           "cc" + good.substr(2) + "-a b",  // a space
           "cc" + good.substr(2) + "-a\n",  // a line's end
           "cc" + good.substr(2) + "-" + std::string(128, 'a'),
           With(3, 'A'),  // upper case
           With(3, 'g'),
           With(2, '_'),
           With(35, '0'),
           With(52, ' '),
           With(54, 'x'),
           With(0, '\0'),
           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
       }) {
    EXPECT_FALSE(IsTraceparent(bad)) << bad;
  }
}

}  // namespace
}  // namespace agg
