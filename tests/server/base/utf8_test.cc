#include "server/base/utf8.h"

#include <string>
#include <utility>

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

TEST(ShownTest, KeepsWhatPeopleRead) {
  for (const std::string text :
       {"", "a b ~", "\xc2\xa0\xc3\xa4", "\xe2\x82\xac", "\xe6\xbc\xa2\xd7\x90",
        "\xf0\x9f\x9a\x80", "\xef\xbf\xbd"}) {
    EXPECT_EQ(Shown(text), text);
    EXPECT_EQ(ShownInJson(text), text);
  }
}

TEST(ShownTest, EscapesWhatActsOrHides) {
  const std::pair<const char*, const char*> kCases[] = {
      {"\x1b[31m", "\\x1b[31m"},
      {"\x7f\t\r", "\\x7f\\x09\\x0d"},
      {"a\nb", "a\\nb"},
      {"\xc2\x80\xc2\x9f", "\\u0080\\u009f"},
      {"\xff\xc3", "\\xff\\xc3"},
      {"\xd8\x9c\xe2\x80\x8e", "\\u061c\\u200e"},
      {"\xe2\x80\xaa\xe2\x80\xae", "\\u202a\\u202e"},
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},
      {"\xe2\x80\x8b\xe2\x80\x8d", "\\u200b\\u200d"},
      {"\xe2\x81\xa0\xef\xbb\xbf", "\\u2060\\ufeff"},
      {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
      {"\xc2\xad\xf3\xa0\x81\x81", "\\u00ad\\U000e0041"},
  };
  for (const auto& [text, shown] : kCases) EXPECT_EQ(Shown(text), shown);
  EXPECT_EQ(Shown(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(Shown("a\nb\x1b", /*keep_lines=*/true), "a\nb\\x1b");
  // Escaped once it stays as it is.
  EXPECT_EQ(Shown(Shown("\xe2\x80\xae")), "\\u202e");
}

TEST(ShownTest, WhatComesOverTheWireCannotControlTheTerminal) {
  EXPECT_EQ(Shown("plain \xc3\xa4 \xe2\x82\xac"),
            "plain \xc3\xa4 \xe2\x82\xac");
  EXPECT_EQ(Shown("\x1b]0;x\x07\x7f"), "\\x1b]0;x\\x07\\x7f");
  EXPECT_EQ(Shown("\xc2\x9b"
                  "31m"),
            "\\u009b31m");
  EXPECT_EQ(Shown("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Shown("\xe2\x82"), "\\xe2\\x82");
  // Overlong forms and surrogates are not UTF-8 either.
  EXPECT_EQ(Shown("\xe0\x9b\x9b"), "\\xe0\\x9b\\x9b");
  EXPECT_EQ(Shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");
}

TEST(ShownTest, InJsonItReadsBackAsItWas) {
  EXPECT_EQ(ShownInJson("[\"\xe2\x80\xae\x7f\xf3\xa0\x81\x81\"]\n"),
            "[\"\\u202e\\u007f\\udb40\\udc41\"]\n");
}

}  // namespace
}  // namespace agg
