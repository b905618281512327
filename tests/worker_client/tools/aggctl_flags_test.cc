#include "worker_client/tools/aggctl_flags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const absl::Status status = ParseAggctlFlags(arguments, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  return std::string(status.message());
}

TEST(AggctlFlagsTest, Defaults) {
  const auto flags = ParseAggctlFlags({"status"}, nullptr);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->command, "status");
  EXPECT_EQ(flags->coordinator, "127.0.0.1:50051");
  EXPECT_FALSE(flags->json);
  EXPECT_EQ(flags->timeout, absl::Seconds(5));
}

TEST(AggctlFlagsTest, FlagsStandAnywhereInBothSpellings) {
  const auto flags = ParseAggctlFlags(
      {"--output", "json", "set-rule", "--step-scale=sqrt", "adasum", "--scope",
       "global", "--learning-rate=1e-3", "--timeout=0.5", "--force-step-scale"},
      nullptr);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_TRUE(flags->json);
  EXPECT_EQ(*flags->rule, "adasum");
  EXPECT_EQ(*flags->scope, "global");
  EXPECT_EQ(*flags->step_scale, "sqrt");
  EXPECT_EQ(*flags->learning_rate, 1e-3);
  EXPECT_TRUE(*flags->force_step_scale);
  EXPECT_FALSE(flags->adacons_beta.has_value());
  EXPECT_EQ(flags->timeout, absl::Milliseconds(500));
}

TEST(AggctlFlagsTest, KrumsOptions) {
  const auto flags =
      ParseAggctlFlags({"set-rule", "multi_krum", "--krum-byzantine-workers=2",
                        "--krum-selected", "0"},
                       nullptr);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(*flags->krum_byzantine_workers, 2);
  EXPECT_EQ(*flags->krum_selected, 0);
}

TEST(AggctlFlagsTest, AdaconsOptions) {
  const auto flags =
      ParseAggctlFlags({"set-rule", "adacons", "--adacons-rescale=mean_norm",
                        "--adacons-beta", "0", "--adacons-unsort", "gather"},
                       nullptr);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(*flags->adacons_rescale, "mean_norm");
  EXPECT_EQ(*flags->adacons_beta, 0.0);
  EXPECT_EQ(*flags->adacons_unsort, "gather");
}

TEST(AggctlFlagsTest, FilesOfTls) {
  const auto flags =
      ParseAggctlFlags({"status", "--tls-ca=a", "--tls-certificate=c",
                        "--tls-key=k", "--tls-server-name=n"},
                       nullptr);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->tls.ca, "a");
  EXPECT_EQ(flags->tls.certificate, "c");
  EXPECT_EQ(flags->tls.key, "k");
  EXPECT_EQ(flags->tls.server_name, "n");
}

TEST(AggctlFlagsTest, TheFlagIsBeforeTheEnvironment) {
  EXPECT_EQ(ParseAggctlFlags({"top"}, "a:1")->coordinator, "a:1");
  EXPECT_EQ(ParseAggctlFlags({"top"}, "")->coordinator, "127.0.0.1:50051");
  EXPECT_EQ(ParseAggctlFlags({"top", "--coordinator=b:2"}, "a:1")->coordinator,
            "b:2");
}

TEST(AggctlFlagsTest, AnAddressIsAHostAndAPort) {
  for (const std::string bad : {"", "host", "http://host:1", "host:", "h:0"}) {
    EXPECT_THAT(
        ErrorOf({"status", "--coordinator=" + bad}),
        HasSubstr("--coordinator is \"" + bad + "\"; allowed: host:port"));
  }
  EXPECT_THAT(
      std::string(ParseAggctlFlags({"status"}, "host").status().message()),
      HasSubstr("AGG_COORDINATOR is \"host\"; allowed: host:port"));
  EXPECT_TRUE(ParseAggctlFlags({"status", "--coordinator=h:1"}, "host").ok());
  EXPECT_TRUE(ParseAggctlFlags({"--help"}, "host").ok());
}

TEST(AggctlFlagsTest, ArgumentsOfCommands) {
  EXPECT_EQ(ParseAggctlFlags({"loglevel", "debug"}, nullptr)->argument,
            "debug");
  const auto pull =
      ParseAggctlFlags({"pull", "p.npz", "--version", "7"}, nullptr);
  EXPECT_EQ(pull->argument, "p.npz");
  EXPECT_EQ(*pull->version, 7u);
  EXPECT_EQ(pull->text, "");
  const auto evict =
      ParseAggctlFlags({"evict", "--rank=3", "--reason=a b"}, nullptr);
  EXPECT_EQ(*evict->rank, 3);
  EXPECT_EQ(evict->reason, "a b");
  const auto rounds = ParseAggctlFlags(
      {"rounds", "--last=0", "--follow", "--interval=2", "--count=9"}, nullptr);
  EXPECT_EQ(rounds->last, 0);
  EXPECT_TRUE(rounds->follow);
  EXPECT_EQ(rounds->interval, absl::Seconds(2));
  EXPECT_EQ(rounds->count, 9);
  const auto audit = ParseAggctlFlags(
      {"audit", "--last=3", "--token-file=/etc/token"}, nullptr);
  EXPECT_EQ(audit->last, 3);
  EXPECT_EQ(audit->token_file, "/etc/token");
}

TEST(AggctlFlagsTest, SwitchesCanBeOff) {
  const auto flags = ParseAggctlFlags(
      {"set-rule", "adasum", "--force-step-scale=false"}, nullptr);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->force_step_scale, false);
}

std::string TextOf(const std::vector<std::string>& arguments) {
  const auto flags = ParseAggctlFlags(arguments, nullptr);
  EXPECT_TRUE(flags.ok()) << flags.status();
  return flags.ok() ? flags->text : "";
}

TEST(AggctlFlagsTest, HelpAndVersionComeBeforeErrors) {
  EXPECT_THAT(TextOf({"--help"}), HasSubstr("aggctl [FLAGS] COMMAND"));
  EXPECT_THAT(TextOf({"evict", "--help"}), HasSubstr("--rank N REQUIRED"));
  EXPECT_THAT(TextOf({"evict", "--rank=-1", "--help"}), HasSubstr("--rank"));
  EXPECT_THAT(TextOf({"--version"}), HasSubstr("aggctl "));
}

TEST(AggctlFlagsTest, HelpHasThreeSpellings) {
  EXPECT_EQ(TextOf({"help"}), TextOf({"--help"}));
  EXPECT_EQ(TextOf({"-h"}), TextOf({"--help"}));
  EXPECT_EQ(TextOf({"help", "evict"}), TextOf({"evict", "--help"}));
  EXPECT_EQ(TextOf({"evict", "-h"}), TextOf({"evict", "--help"}));
  EXPECT_THAT(ErrorOf({"help", "stop"}), HasSubstr("unknown command \"stop\""));
}

TEST(AggctlFlagsTest, ErrorsNameWhatIsWrongAndAllowed) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("no command; allowed: status, workers"));
  EXPECT_THAT(ErrorOf({"stop"}), HasSubstr("unknown command \"stop\""));
  EXPECT_THAT(ErrorOf({"stop", "--help"}), HasSubstr("unknown command"));
  EXPECT_THAT(ErrorOf({"status", "--rank=1"}),
              HasSubstr("unknown flag \"--rank=1\"; allowed: --help, --coord"));
  EXPECT_THAT(ErrorOf({"status", "now"}),
              HasSubstr("unexpected argument \"now\""));
  EXPECT_THAT(ErrorOf({"pull", "a.npz", "status"}),
              HasSubstr("unexpected argument \"status\""));
  EXPECT_THAT(ErrorOf({"status", "--wrong=1"}),
              HasSubstr("unknown flag \"--wrong=1\""));
  EXPECT_THAT(ErrorOf({"status", "--output=xml"}),
              HasSubstr("--output is \"xml\"; allowed: table, json"));
  EXPECT_THAT(ErrorOf({"status", "--coordinator=here"}),
              HasSubstr("allowed: host:port"));
  EXPECT_THAT(ErrorOf({"status", "--timeout=-1"}), HasSubstr("--timeout"));
  EXPECT_THAT(ErrorOf({"status", "--timeout"}), HasSubstr("--timeout is \"\""));
  EXPECT_THAT(ErrorOf({"rounds", "--follow=perhaps"}),
              HasSubstr("--follow is \"perhaps\"; allowed: true, false"));
  EXPECT_THAT(ErrorOf({"evict"}),
              HasSubstr("--rank is missing; allowed: 0 or more"));
  EXPECT_THAT(ErrorOf({"evict", "--rank=-1"}), HasSubstr("--rank is \"-1\""));
  EXPECT_THAT(ErrorOf({"evict", "--reason=", "--rank=1"}),
              HasSubstr("--reason is \"\""));
  EXPECT_THAT(ErrorOf({"loglevel"}),
              HasSubstr("LEVEL is missing; allowed: debug, info"));
  EXPECT_THAT(ErrorOf({"doctor", "--config=a", "--parameters=10000000000001"}),
              HasSubstr("--parameters is \"10000000000001\"; allowed: a whole "
                        "number, 0 to 10000000000000"));
  EXPECT_THAT(ErrorOf({"doctor", "--parameters=5"}),
              HasSubstr("--parameters is 5; allowed: with --config"));
  EXPECT_THAT(ErrorOf({"pull"}), HasSubstr("FILE is missing"));
  EXPECT_THAT(ErrorOf({"set-rule", "adasum", "--rule=mean"}),
              HasSubstr("not both"));
  EXPECT_THAT(ErrorOf({"set-rule", "--learning-rate=nan"}),
              HasSubstr("a finite number"));
}

TEST(AggctlFlagsTest, HelpNamesAllCommandsAndACommandsFlags) {
  AggctlFlags unused;
  for (const Program& command : AggctlProgram(&unused).commands) {
    EXPECT_THAT(TextOf({"--help"}), HasSubstr("\n  " + command.name + " "));
    const std::string help = TextOf({command.name, "--help"});
    for (const Flag& flag : command.flags) {
      EXPECT_THAT(help, HasSubstr("\n  " + flag.name + " "));
    }
    EXPECT_THAT(help, HasSubstr("--coordinator"));
  }
  EXPECT_THAT(TextOf({"status", "--help"}), Not(HasSubstr("--rank")));
  EXPECT_THAT(TextOf({"set-rule", "--help"}),
              HasSubstr("aggctl set-rule [FLAGS] [RULE]"));
}

}  // namespace
}  // namespace agg
