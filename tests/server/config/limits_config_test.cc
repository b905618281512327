#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_text.h"
#include "server/config/options.h"
#include "server/config/security_config.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<AccessOptions> Options(const std::string& security) {
  FieldErrors errors;
  v1::JobConfig config;
  const std::string text =
      absl::StrCat("workers: 4 learning_rate { rate: 1 } ",
                   "shards: \"127.0.0.1:1\" security { ", security, " }");
  EXPECT_TRUE(errors.Take(ParseJobConfig(text, "test", &errors), &config))
      << errors.status();
  const auto options = MakeServerOptions(WithDefaults(config));
  if (!options.ok()) return options.status();
  return options->access;
}

std::string ErrorOf(const std::string& security) {
  return std::string(Options(security).status().message());
}

TEST(LimitsConfigTest, DefaultsAreForAllAndThreeQuartersForAnIdentity) {
  const auto options = Options(
      "identities { name: \"a\" token_file: \"/a\" roles: \"worker\" } "
      "shard_token_file: \"/s\"");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->limits.max_sessions, 4);
  EXPECT_EQ(options->limits.max_streams, 1088);
  EXPECT_EQ(options->limits.max_waiting_calls, 8256);
  EXPECT_EQ(options->limits.joins_per_second, 100.0);
  EXPECT_EQ(options->limits.max_bytes_in_flight, int64_t{320} << 20);
  EXPECT_EQ(options->max_connections, 4096);
  const CallLimits own = options->identities[0].limits;
  EXPECT_EQ(own.max_sessions, 4);
  EXPECT_EQ(own.max_streams, 816);
  EXPECT_EQ(own.joins_per_second, 75.0);
  EXPECT_EQ(own.max_bytes_in_flight, int64_t{240} << 20);
}

TEST(LimitsConfigTest, EachFieldMayBeSetForAllAndForOne) {
  const auto options = Options(
      "identities { name: \"a\" token_file: \"/a\" roles: \"worker\" limits "
      "{ max_sessions: 1 max_streams: 2 max_waiting_calls: 3 "
      "joins_per_second: 0.5 max_bytes_in_flight: 33554432 } } "
      "limits { max_streams: 100 max_connections: 64 } "
      "shard_token_file: \"/s\"");
  ASSERT_TRUE(options.ok()) << options.status();
  const CallLimits own = options->identities[0].limits;
  EXPECT_EQ(own.max_sessions, 1);
  EXPECT_EQ(own.max_streams, 2);
  EXPECT_EQ(own.max_waiting_calls, 3);
  EXPECT_EQ(own.joins_per_second, 0.5);
  EXPECT_EQ(own.max_bytes_in_flight, 33554432);
  EXPECT_EQ(options->limits.max_streams, 100);
  EXPECT_EQ(options->max_connections, 64);
}

// workers: 4.
TEST(LimitsConfigTest, LimitsOfAllWithWhichAJobCannotBeginAreRefused) {
  EXPECT_THAT(
      ErrorOf("limits { max_sessions: 3 max_streams: 15 max_waiting_calls: 7 "
              "max_bytes_in_flight: 57496919 max_connections: 15 }"),
      AllOf(HasSubstr("security.limits.max_sessions is 3; allowed: 0 (the "
                      "default), or 4 to 1000000"),
            HasSubstr("security.limits.max_streams is 15; allowed: 0 (the "
                      "default), or 16 to 1000000"),
            HasSubstr("security.limits.max_waiting_calls is 7; allowed: 0 (the "
                      "default), or 8 to 1000000"),
            HasSubstr("security.limits.max_bytes_in_flight is 57496919; "
                      "allowed: 0 (the default), or 57496920 to"),
            HasSubstr("security.limits.max_connections is 15; allowed: 0 (the "
                      "default), or 16 to 1000000")));
}

// Also where one identity has all workers.
TEST(LimitsConfigTest, TheLeastOfAllIsEnoughForEachIdentity) {
  const auto options = Options(
      "identities { name: \"a\" token_file: \"/a\" roles: \"worker\" } "
      "limits { max_sessions: 4 max_streams: 16 max_waiting_calls: 8 "
      "max_bytes_in_flight: 57496920 max_connections: 16 } "
      "shard_token_file: \"/s\"");
  ASSERT_TRUE(options.ok()) << options.status();
  const CallLimits own = options->identities[0].limits;
  EXPECT_EQ(own.max_sessions, 4);
  EXPECT_GE(own.max_streams, 4 * 3);  // Attend, Push, Pull
  EXPECT_GE(own.max_waiting_calls, 4);
  // A Push and a Pull of each, and a Join.
  EXPECT_GE(own.max_bytes_in_flight, 4 * ((8 << 20) + (256 << 10)) + (8 << 20));
  for (int workers = 1; workers <= kMaxWorkers; ++workers) {
    const CallLimits least = LeastOfAll(workers);
    const CallLimits share = ShareOf(least);
    ASSERT_GE(share.max_sessions, workers);
    ASSERT_GE(share.max_streams, 3 * workers);
    ASSERT_GE(share.max_waiting_calls, workers);
    ASSERT_LE(least.max_bytes_in_flight,
              DefaultLimits(workers).max_bytes_in_flight);
    ASSERT_LE(least.max_streams, DefaultLimits(workers).max_streams);
  }
}

TEST(LimitsConfigTest, ErrorsNameFieldValueAndWhatIsAllowed) {
  EXPECT_THAT(ErrorOf("limits { max_streams: -1 joins_per_second: nan "
                      "max_bytes_in_flight: 1000 max_connections: 2 }"),
              AllOf(HasSubstr("security.limits.max_streams is -1; allowed: 0 "
                              "(the default), or 16 to 1000000"),
                    HasSubstr("security.limits.joins_per_second is nan"),
                    HasSubstr("security.limits.max_bytes_in_flight is 1000"),
                    HasSubstr("security.limits.max_connections is 2")));
  EXPECT_THAT(
      ErrorOf("identities { name: \"a\" token_file: \"/a\" roles: \"worker\" "
              "limits { max_connections: 20 max_sessions: -2 } }"),
      AllOf(HasSubstr("security.identities[0].limits.max_connections is 20"),
            HasSubstr("security.identities[0].limits.max_sessions is -2")));
}

}  // namespace
}  // namespace agg
