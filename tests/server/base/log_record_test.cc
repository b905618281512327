#include "server/base/log_record.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LogRecord Record(const std::string& message) {
  LogRecord record;
  record.level = LogLevel::kWarning;
  record.message = message;
  record.file = "server/a.cc";
  record.line = 7;
  return record;
}

LogOwner Owner(LogFormat format) {
  LogOwner owner;
  owner.format = format;
  owner.name = "shard1";
  owner.job = "a \"job\"";
  owner.shard = 1;
  return owner;
}

std::string Format(const LogRecord& record, LogFormat format) {
  return FormatRecord(record, Owner(format),
                      absl::FromUnixMillis(1795305600123));
}

TEST(LogRecordTest, ATextHasTimeLevelAndName) {
  LogRecord record = Record("hello");
  EXPECT_EQ(Format(record, LogFormat::kText),
            "2026-11-22T00:00:00.123Z W shard1] hello\n");
  record.num_held_back = 59;
  EXPECT_EQ(Format(record, LogFormat::kText),
            "2026-11-22T00:00:00.123Z W shard1] hello (59 more like it held "
            "back)\n");
}

TEST(LogRecordTest, JsonHasTheDocumentedFieldsInTheirOrder) {
  LogRecord record = Record("hello");
  EXPECT_EQ(Format(record, LogFormat::kJson),
            "{\"time\": \"2026-11-22T00:00:00.123Z\", \"severity\": "
            "\"WARNING\", \"message\": \"hello\", \"job\": \"a "
            "\\\"job\\\"\", \"shard\": 1, \"file\": \"server/a.cc\", \"line\": "
            "7}\n");
  record.num_held_back = 59;
  EXPECT_EQ(Json::parse(Format(record, LogFormat::kJson))["held_back"], 59);
}

TEST(LogRecordTest, JsonHasNoJobBeforeItIsKnown) {
  const Json line = Json::parse(FormatRecord(
      Record("no configuration"), {LogFormat::kJson, "", "", 0}, absl::Now()));
  EXPECT_FALSE(line.contains("job"));
  EXPECT_FALSE(line.contains("shard"));
}

TEST(LogRecordTest, SeveritiesOfAllLevels) {
  LogRecord record = Record("");
  const char* const kExpected[] = {"DEBUG", "INFO", "WARNING", "ERROR", "INFO"};
  for (int i = 0; i < 5; ++i) {
    record.level = static_cast<LogLevel>(i);
    EXPECT_EQ(Json::parse(Format(record, LogFormat::kJson))["severity"],
              kExpected[i]);
  }
}

// What peers send is in messages: all that could end a line, move a terminal's
// cursor, or turn text around, in either form.
TEST(LogRecordTest, WhateverComesIsOneLineThatReadsBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string message =
        absl::StrCat("a\"\\", std::string(1, byte), "b");
    for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
      const std::string line = Format(Record(message), format);
      EXPECT_EQ(line.find('\n'), line.size() - 1) << byte;
      for (const char c : line.substr(0, line.size() - 1)) {
        EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f) << byte;
      }
    }
    const Json line = Json::parse(Format(Record(message), LogFormat::kJson));
    if (byte < 0x80) {
      EXPECT_EQ(line["message"], message);
    } else {
      EXPECT_EQ(line["message"],
                "a\"\\\xef\xbf\xbd"
                "b")
          << byte;
    }
  }
  // C1 controls, overrides of direction, separators of lines.
  for (const std::string hidden :
       {"\xc2\x85", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\xa8",
        "\xf3\xa0\x80\x81"}) {
    for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
      EXPECT_THAT(Format(Record("a" + hidden), format), Not(HasSubstr(hidden)));
    }
    EXPECT_EQ(
        Json::parse(Format(Record("a" + hidden), LogFormat::kJson))["message"],
        "a" + hidden);
  }
}

TEST(LogRecordTest, ALongMessageIsCutWhereACharacterBegins) {
  const std::string message = std::string(8190, 'x') + "\xe2\x82\xac" + "y";
  const Json line = Json::parse(Format(Record(message), LogFormat::kJson));
  EXPECT_EQ(line["message"], std::string(8190, 'x') + " [cut: 8194 bytes]");
}

TEST(LogRecordTest, FormatsHaveNamesThatAreRead) {
  LogFormat format = LogFormat::kText;
  EXPECT_TRUE(ParseLogFormat("json", &format));
  EXPECT_EQ(format, LogFormat::kJson);
  EXPECT_FALSE(ParseLogFormat("JSON", &format));
  EXPECT_FALSE(ParseLogFormat("", &format));
  EXPECT_EQ(format, LogFormat::kJson);
  EXPECT_TRUE(ParseLogFormat("text", &format));
  EXPECT_EQ(format, LogFormat::kText);
}

}  // namespace
}  // namespace agg
