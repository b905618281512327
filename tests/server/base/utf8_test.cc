#include "server/base/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

const char kReplacement[] = "\xEF\xBF\xBD";

TEST(ValidUtf8Test, KeepsWellFormedText) {
  for (const char* text :
       {"", "conv1/weight:0", "a\"b\\c\nd", "\xC2\x80", "\xDF\xBF",
        "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBD", "\xF0\x90\x80\x80",
        "\xF4\x8F\xBF\xBF",
        "gr\xC3\xA4"
        "dient \xE6\xA2\xAF"}) {
    EXPECT_EQ(ValidUtf8(text), text);
  }
}

TEST(ValidUtf8Test, ReplacesEachStrayByte) {
  EXPECT_EQ(ValidUtf8("a\xFF"
                      "b"),
            std::string("a") + kReplacement + "b");
  EXPECT_EQ(ValidUtf8("\x80"), kReplacement);
  // Overlong, surrogate, above U+10FFFF, cut short: no sequence starts.
  const std::string r = kReplacement;
  EXPECT_EQ(ValidUtf8("\xC0\xAF"), r + r);
  EXPECT_EQ(ValidUtf8("\xE0\x9F\xBF"), r + r + r);
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(ValidUtf8("\xF0\x8F\xBF\xBF"), r + r + r + r);
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(ValidUtf8("x\xE6\xA2"), "x" + r + r);
  EXPECT_EQ(ValidUtf8("\xC3z"), r + "z");
}

TEST(Utf8SequenceBytesTest, TellsWhereACharacterEnds) {
  EXPECT_EQ(Utf8SequenceBytes("az"), 1u);
  EXPECT_EQ(Utf8SequenceBytes("\xC3\xA4z"), 2u);
  EXPECT_EQ(Utf8SequenceBytes("\xE6\xA2\xAFz"), 3u);
  EXPECT_EQ(Utf8SequenceBytes("\xF0\x90\x80\x80z"), 4u);
  EXPECT_EQ(Utf8SequenceBytes("\xE6\xA2"), 0u);
  EXPECT_EQ(Utf8SequenceBytes("\xED\xA0\x80"), 0u);
}

}  // namespace
}  // namespace agg
