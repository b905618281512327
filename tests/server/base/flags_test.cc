#include "server/base/flags.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the flags of Tool() set.
struct Values {
  std::string file;
  std::optional<double> rate;
  bool on = true;
  std::vector<std::string> parts;
  absl::Duration wait;
  std::string argument;
};

Program Tool(Values* values) {
  Program tool;
  tool.name = "tool";
  tool.summary = "tool: for this test.";
  tool.version = "tool 1\n";
  tool.flags = {
      {"--file", "PATH", "a file", TextValue(&values->file)},
      {"--rate", "RATE", "a rate",
       NumberValue(0.0, 1.0, "0 to 1", &values->rate)},
      {"--on", "", "a switch", SwitchValue(&values->on)},
      {"--part",
       "PART",
       "several",
       {"anything",
        [values](const std::string& text) {
          values->parts.push_back(text);
          return true;
        }}},
      {"--wait", "SECONDS", "a time", SecondsValue(0.5, &values->wait)},
      {"WHAT", "a|b", "the argument", TextValue(&values->argument, "a, b")},
  };
  return tool;
}

absl::StatusOr<ParsedFlags> Parse(const std::vector<std::string>& arguments,
                                  Values* values) {
  return ParseFlags(Tool(values), arguments);
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  Values values;
  const absl::Status status = Parse(arguments, &values).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(FlagsTest, BothSpellingsAndAnyOrder) {
  Values values;
  ASSERT_TRUE(
      Parse({"--rate", "0.25", "a", "--file=x=y", "--on=false"}, &values).ok());
  EXPECT_EQ(values.rate, 0.25);
  EXPECT_EQ(values.argument, "a");
  EXPECT_EQ(values.file, "x=y");
  EXPECT_FALSE(values.on);
  ASSERT_TRUE(Parse({"--on", "b"}, &values).ok());
  EXPECT_TRUE(values.on);
  EXPECT_EQ(values.argument, "b");
}

TEST(FlagsTest, EachOfSeveralIsSetAndTheLastStays) {
  Values values;
  ASSERT_TRUE(Parse({"--part=1", "--part", "[2,3]", "--part={}", "--file=x",
                     "--file=y"},
                    &values)
                  .ok());
  EXPECT_THAT(values.parts, ElementsAre("1", "[2,3]", "{}"));
  EXPECT_EQ(values.file, "y");
  EXPECT_THAT(ErrorOf({"--rate=2", "--rate=1"}), HasSubstr("--rate is \"2\""));
}

// `--file=$UNSET` of a script must not take the next argument as its value.
TEST(FlagsTest, AnEmptyValueIsOne) {
  EXPECT_EQ(ErrorOf({"--file=", "--on"}), "--file is \"\"; allowed: not empty");
  EXPECT_EQ(ErrorOf({"--file", ""}), "--file is \"\"; allowed: not empty");
  EXPECT_EQ(ErrorOf({"--file"}), "--file is \"\"; allowed: not empty");
}

TEST(FlagsTest, NumbersAreDecimalAndInRange) {
  Values values;
  for (const char* text : {"-0.1", "1.1", "nan", "inf", "", "x", "1x"}) {
    EXPECT_EQ(ErrorOf({"--rate", text}),
              "--rate is \"" + std::string(text) + "\"; allowed: 0 to 1");
  }
  EXPECT_EQ(ErrorOf({"--wait=0.4"}),
            "--wait is \"0.4\"; allowed: 0.5 to 86400");
  ASSERT_TRUE(Parse({"--wait=86400"}, &values).ok());
  EXPECT_EQ(values.wait, absl::Hours(24));
  int number = 0;
  const FlagValue octal = NumberValue(0, 99, "0 to 99", &number);
  EXPECT_TRUE(octal.set("010"));
  EXPECT_EQ(number, 10);
  EXPECT_FALSE(octal.set("0x10"));
  EXPECT_FALSE(octal.set("100"));
}

TEST(FlagsTest, WhatNobodyTakesIsNamed) {
  const std::string allowed =
      "allowed: --help, --version, --file, --rate, --on, --part, --wait";
  EXPECT_EQ(ErrorOf({"--what=1"}), "unknown flag \"--what=1\"; " + allowed);
  EXPECT_EQ(ErrorOf({"-file=x"}),
            "unexpected argument \"-file=x\"; " + allowed);
  EXPECT_EQ(ErrorOf({"a", "b"}), "unexpected argument \"b\"; " + allowed);
  EXPECT_THAT(ErrorOf({"--on=perhaps"}), HasSubstr("allowed: true, false"));
}

TEST(FlagsTest, HelpAndVersionAreTexts) {
  Values values;
  EXPECT_THAT(Parse({"--rate=2", "-h"}, &values)->text,
              HasSubstr("\n  --rate RATE "));
  EXPECT_EQ(Parse({"--version"}, &values)->text, "tool 1\n");
  EXPECT_EQ(Parse({}, &values)->text, "");
}

TEST(FlagsTest, CommandsHaveTheProgramsFlags) {
  Values values;
  Program program;
  program.name = "program";
  program.flags = {{"--file", "PATH", "a file", TextValue(&values.file)}};
  Program command;
  command.name = "go";
  command.flags = {
      {"--on", "", "a switch", SwitchValue(&values.on)},
      {"WHERE", "PLACE", "", TextValue(&values.argument), /*required=*/true}};
  program.commands = {command};
  EXPECT_EQ(ParseFlags(program, {"go", "go", "--file=x"})->command, "go");
  EXPECT_EQ(values.argument, "go");
  EXPECT_EQ(values.file, "x");
  ASSERT_TRUE(ParseFlags(program, {"--file=y", "go", "up", "--on"}).ok());
  EXPECT_EQ(values.file, "y");
  for (const auto& [arguments, error] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "no command; allowed: go"},
           {{"--file=x"}, "no command; allowed: go"},
           {{"--file="}, "--file is \"\"; allowed: not empty"},
           {{"stop"}, "unknown command \"stop\"; allowed: go"},
           {{"--on", "go", "x"},
            "unknown flag \"--on\"; allowed: --help, --on, --file"},
           {{"go"}, "WHERE is missing; allowed: not empty"}}) {
    EXPECT_EQ(ParseFlags(program, arguments).status().message(), error);
  }
}

}  // namespace
}  // namespace agg
