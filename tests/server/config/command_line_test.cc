#include "server/config/command_line.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

TEST(CommandLineTest, Defaults) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine({});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->config, "");
  EXPECT_FALSE(line->port.has_value());
  EXPECT_FALSE(line->metrics_port.has_value());
  EXPECT_EQ(line->drain, absl::Seconds(10));
  EXPECT_EQ(line->log_level, LogLevel::kInfo);
  EXPECT_EQ(line->log_format, LogFormat::kText);
  EXPECT_FALSE(line->validate || line->print_config);
  EXPECT_EQ(line->text, "");
  EXPECT_TRUE(line->admin);
  EXPECT_FALSE(ParseCommandLine({"--admin=false"})->admin);
}

TEST(CommandLineTest, BothSpellings) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(
      {"--config", "a b", "--shard=auto", "--port=0", "--port_file", "p",
       "--bind=0.0.0.0", "--metrics_port", "9090", "--metrics_port_file=m",
       "--validate", "--print_config=false", "--log_level=error",
       "--log_format=json", "--drain_seconds=2.5"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config, "a b");
  EXPECT_EQ(line->shard, "auto");
  EXPECT_EQ(line->port, 0);
  EXPECT_EQ(line->port_file, "p");
  EXPECT_EQ(line->bind, "0.0.0.0");
  EXPECT_EQ(line->metrics_port, 9090);
  EXPECT_EQ(line->metrics_port_file, "m");
  EXPECT_TRUE(line->validate);
  EXPECT_FALSE(line->print_config);
  EXPECT_EQ(line->log_level, LogLevel::kError);
  EXPECT_EQ(line->log_format, LogFormat::kJson);
  EXPECT_EQ(line->drain, absl::Milliseconds(2500));
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const absl::Status status = ParseCommandLine(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CommandLineTest, ErrorsNameTheFlag) {
  EXPECT_THAT(ErrorOf({"--wrong=1"}), HasSubstr("unknown flag \"--wrong=1\""));
  EXPECT_THAT(ErrorOf({"job.textproto"}), HasSubstr("job.textproto"));
  EXPECT_THAT(ErrorOf({"-config=x"}), HasSubstr("-config=x"));
  EXPECT_THAT(ErrorOf({"--"}), HasSubstr("unexpected argument"));
  EXPECT_THAT(ErrorOf({"--port=65536"}),
              HasSubstr("--port is \"65536\"; allowed: 0"));
  EXPECT_THAT(ErrorOf({"--port=-1"}), HasSubstr("--port"));
  EXPECT_THAT(ErrorOf({"--port"}), HasSubstr("--port is \"\""));
  EXPECT_THAT(ErrorOf({"--config="}), HasSubstr("--config is \"\""));
  EXPECT_THAT(ErrorOf({"--validate=perhaps"}), HasSubstr("true, false"));
  EXPECT_THAT(ErrorOf({"--log_level=loud"}), HasSubstr("warning"));
  EXPECT_THAT(ErrorOf({"--log_format=xml"}), HasSubstr("text, json"));
  EXPECT_THAT(ErrorOf({"--drain_seconds=nan"}), HasSubstr("--drain_seconds"));
}

TEST(CommandLineTest, HelpHasEveryFlag) {
  for (const char* spelling : {"-h", "--help"}) {
    const std::string text = ParseCommandLine({spelling})->text;
    for (const char* flag :
         {"--config", "--shard", "--port", "--port_file", "--bind",
          "--metrics_port", "--metrics_port_file", "--admin", "--validate",
          "--print_config", "--log_level", "--log_format", "--drain_seconds",
          "--version"}) {
      EXPECT_THAT(text, HasSubstr(std::string("\n  ") + flag + " "));
    }
    EXPECT_THAT(text, HasSubstr("--help"));
  }
  EXPECT_THAT(ParseCommandLine({"--version"})->text, HasSubstr("agg_server "));
}

TEST(ShardOrdinalTest, GivenOrFromTheHost) {
  EXPECT_EQ(*ShardOrdinal("2", "host", 3), 2);
  EXPECT_EQ(*ShardOrdinal("", "host", 1), 0);
  EXPECT_EQ(*ShardOrdinal("auto", "agg-12", 13), 12);
  for (const auto& bad :
       {ShardOrdinal("", "agg-1", 2), ShardOrdinal("3", "h", 3),
        ShardOrdinal("-1", "h", 3), ShardOrdinal("auto", "host", 3),
        ShardOrdinal("auto", "agg-3", 3), ShardOrdinal("x", "h", 3)}) {
    EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(bad.status().message()), HasSubstr("--shard is"));
  }
}

}  // namespace
}  // namespace agg
