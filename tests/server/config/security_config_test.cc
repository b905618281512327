#include "server/config/security_config.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"
#include "server/base/field_error.h"
#include "server/config/config_text.h"
#include "server/config/options.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<ServerOptions> Make(const std::string& text) {
  const absl::StatusOr<v1::JobConfig> config =
      ParseJobConfig("workers: 4 learning_rate { rate: 0.1 } " + text, "test");
  if (!config.ok()) return config.status();
  return MakeServerOptions(WithDefaults(*config));
}

std::string ErrorOf(const std::string& text) {
  const absl::Status status = Make(text).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
  return std::string(status.message());
}

TEST(SecurityConfigTest, NothingIsTheDefault) {
  const auto options = Make("");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->security.tls());
  EXPECT_FALSE(options->security.insecure);
  EXPECT_FALSE(options->security.peers.any());
  EXPECT_TRUE(options->shard.shared_memory);
}

TEST(SecurityConfigTest, Tls) {
  const auto options =
      Make("security { tls { certificate: 'c' key: 'k' client_ca: 'ca' } }");
  ASSERT_TRUE(options.ok()) << options.status();
  const SecuritySettings& security = options->security;
  EXPECT_TRUE(security.tls());
  EXPECT_EQ(security.files.certificate, "c");
  EXPECT_EQ(security.files.key, "k");
  EXPECT_EQ(security.files.ca, "ca");
  EXPECT_EQ(security.files.ca_field, "security.tls.client_ca");
  EXPECT_EQ(security.reload, absl::Seconds(60));
  EXPECT_EQ(security.peers.ca, "ca");
  EXPECT_EQ(security.peers.certificate, "c");
  EXPECT_EQ(security.peers.key, "k");
}

TEST(SecurityConfigTest, AnotherCaOfShards) {
  const auto options = Make(
      "security { tls { certificate: 'c' key: 'k' ca: 'shards' "
      "reload_seconds: 0.5 } }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->security.files.ca, "");
  EXPECT_EQ(options->security.peers.ca, "shards");
  EXPECT_EQ(options->security.reload, absl::Seconds(0.5));
  EXPECT_EQ(options->security.peers.reload, absl::Seconds(0.5));
}

TEST(SecurityConfigTest, MemoryIsSharedWithTlsOnlyIfItIsAskedFor) {
  const std::string tls =
      "security { tls { certificate: 'c' key: 'k' client_ca: 'ca' } } ";
  EXPECT_FALSE(Make(tls)->shard.shared_memory);
  EXPECT_TRUE(Make(tls + "shared_memory: 'on'")->shard.shared_memory);
  EXPECT_TRUE(Make("shared_memory: 'on'")->shard.shared_memory);
  EXPECT_FALSE(Make("shared_memory: 'off'")->shard.shared_memory);
}

TEST(SecurityConfigTest, AllMistakesAreNamed) {
  const std::string error =
      ErrorOf("security { tls { reload_seconds: -1 } insecure: true }");
  for (const char* part :
       {"security.tls.certificate is \"\"; allowed: ",
        "security.tls.key is \"\"; allowed: ",
        "security.tls.ca is \"\"; allowed: ",
        "security.tls.reload_seconds is -1; allowed: finite, >= 0.01",
        "security.insecure is true; allowed: without security.tls"}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
}

TEST(SecurityConfigTest, TheHttpPortAsksWhereThereAreIdentities) {
  const std::string identities =
      "security { identities { name: 'o' token_file: 't' roles: 'observer' } "
      "shard_token_file: 's' ";
  EXPECT_FALSE(Make("")->security.http.asks);
  EXPECT_TRUE(Make(identities + "}")->security.http.asks);
  EXPECT_FALSE(
      Make(identities + "http { pages: 'open' } }")->security.http.asks);
  EXPECT_FALSE(Make("")->security.http.insecure);
  EXPECT_TRUE(Make("security { insecure: true }")->security.http.insecure);
  EXPECT_TRUE(
      Make("security { http { insecure: true } }")->security.http.insecure);
  EXPECT_EQ(
      Make("security { http { tensors: 'hidden' } }")->security.http.tensors,
      HttpSettings::Tensors::kHidden);
}

TEST(SecurityConfigTest, MistakesOfTheHttpPortAreNamed) {
  EXPECT_THAT(ErrorOf("security { http { pages: 'all' tensors: 'some' } }"),
              testing::AllOf(
                  HasSubstr("security.http.pages is \"all\"; allowed: "
                            "\"identities\", \"open\""),
                  HasSubstr("security.http.tensors is \"some\"; allowed: ")));
  EXPECT_THAT(ErrorOf("security { http { pages: 'identities' } }"),
              HasSubstr("only with security.identities"));
}

// Paths are of each shard's host, and a restart for a new one is one shard's.
TEST(SecurityConfigTest, IsNoPartOfTheFingerprint) {
  EXPECT_EQ(Make("")->fingerprint,
            Make("security { insecure: true }")->fingerprint);
}

constexpr char kJob[] =
    "workers: 1 learning_rate { rate: 1 } shards: \"127.0.0.1:1\" ";
constexpr char kIdentity[] =
    "identities { name: \"a\" token_file: \"/a\" roles: \"worker\" } ";

constexpr char kTls[] =
    "tls { certificate: \"/c\" key: \"/k\" client_ca: \"/ca\" } ";
constexpr char kShards[] =
    "identities { name: \"shards\" san: \"spiffe://agg/shard/*\" "
    "roles: \"shard\" } ";

v1::JobConfig Config(const std::string& security) {
  FieldErrors errors;
  v1::JobConfig config;
  const std::string text = absl::StrCat(kJob, "security { ", security, " }");
  EXPECT_TRUE(errors.Take(ParseJobConfig(text, "test", &errors), &config))
      << errors.status();
  return WithDefaults(config);
}

std::string ErrorOf(const v1::JobConfig& config) {
  return std::string(MakeServerOptions(config).status().message());
}

TEST(AccessConfigTest, IdentitiesBecomeOptions) {
  const auto options = MakeServerOptions(Config(
      "identities { name: \"t\" san: \"spiffe://agg/worker/*\" san: \"w.x\" "
      "token_file: \"/t\" roles: \"worker\" roles: \"observer\" } "
      "shard_token_file: \"/s\" health: \"off\" audit { path: \"/audit\" }"));
  ASSERT_TRUE(options.ok()) << options.status();
  const AccessOptions& access = options->access;
  ASSERT_EQ(access.identities.size(), 1);
  EXPECT_EQ(access.identities[0].name, "t");
  EXPECT_EQ(access.identities[0].sans.size(), 2);
  EXPECT_EQ(access.identities[0].token_file, "/t");
  EXPECT_EQ(access.identities[0].roles,
            (Roles{Role::kWorker, Role::kObserver}));
  EXPECT_FALSE(access.health);
  EXPECT_FALSE(access.reflection);
  EXPECT_EQ(access.audit.path, "/audit");
  EXPECT_EQ(access.audit.max_bytes, int64_t{64} << 20);
}

// Who would a certificate with a name of both be?
TEST(AccessConfigTest, NamesOfTwoIdentitiesAreRefused) {
  const auto error = [](const std::string& first, const std::string& second) {
    return ErrorOf(Config(absl::StrCat(
        "identities { name: \"one\" ", first,
        " token_file: \"/1\" roles: \"worker\" } identities { name: \"two\" ",
        second,
        " token_file: \"/2\" roles: \"observer\" } shard_token_file: \"/s\"")));
  };
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{
           {"spiffe://a/b", "spiffe://a/b"},
           {"spiffe://a/*", "spiffe://a/b"},
           {"spiffe://a/b", "spiffe://a/*"},
           {"spiffe://a/*", "spiffe://a/b/*"},
           {"spiffe://a/b/*", "spiffe://a/*"},
           {"a*", "a"}}) {
    EXPECT_EQ(error(absl::StrCat("san: \"x.y\" san: \"", first, "\""),
                    absl::StrCat("san: \"", second, "\"")),
              absl::StrCat("security.identities[1].san[0] is \"", second,
                           "\"; allowed: names that are no other identity's: "
                           "identity \"one\" has \"",
                           first, "\""));
  }
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{
           {"spiffe://a/b", "spiffe://a/c"},
           {"spiffe://a/b/*", "spiffe://a/b"},
           {"spiffe://a/b/*", "spiffe://a/c/*"}}) {
    EXPECT_EQ(error(absl::StrCat("san: \"", first, "\" san: \"spiffe://x/*\""),
                    absl::StrCat("san: \"", second, "\"")),
              "");
  }
  // Of one identity they may.
  EXPECT_EQ(error("san: \"a*\" san: \"ab\"", "san: \"c\""), "");
}

TEST(AccessConfigTest, WithoutIdentitiesEverythingIsAsItWas) {
  const auto options = MakeServerOptions(Config(""));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->access.on());
  EXPECT_TRUE(options->access.health);
  EXPECT_TRUE(options->access.reflection);
}

TEST(AccessConfigTest, ErrorsNameTheFieldTheValueAndWhatIsAllowed) {
  const std::string error = ErrorOf(Config(
      "identities { name: \"a b\" san: \"*\" san: \"x*y\" roles: \"root\" } "
      "identities { name: \"shard\" token_file: \"/x\" } "
      "health: \"maybe\" reflection: \"x\" audit { max_bytes: 1 }"));
  EXPECT_THAT(error, HasSubstr("security.identities[0].name is \"a b\"; "));
  EXPECT_THAT(error, HasSubstr("security.identities[0].san[0] is \"*\"; "));
  EXPECT_THAT(error, HasSubstr("security.identities[0].san[1] is \"x*y\"; "));
  EXPECT_THAT(error, HasSubstr("security.identities[0].roles[0] is \"root\"; "
                               "allowed: \"worker\""));
  EXPECT_THAT(error, HasSubstr("security.identities[1].name is \"shard\"; "));
  EXPECT_THAT(error, HasSubstr("security.identities[1].roles is empty; "));
  EXPECT_THAT(error, HasSubstr("security.health is \"maybe\"; "));
  EXPECT_THAT(error, HasSubstr("security.reflection is \"x\"; "));
  EXPECT_THAT(error, HasSubstr("security.audit.max_bytes is 1; "));
}

TEST(AccessConfigTest, AnIdentityHasACredentialAndANameOfItsOwn) {
  const std::string error = ErrorOf(Config(absl::StrCat(
      kIdentity, kIdentity, "identities { name: \"b\" roles: \"worker\" }")));
  EXPECT_THAT(error, HasSubstr("security.identities[1].name is \"a\"; "));
  EXPECT_THAT(error, HasSubstr("security.identities[2].token_file is \"\"; "));
}

// It asks its own address who coordinates (P21), as anybody would.
TEST(AccessConfigTest, OneShardToo) {
  EXPECT_THAT(ErrorOf(Config(kIdentity)),
              HasSubstr("security.shard_token_file is \"\"; allowed: "));
  EXPECT_EQ(
      ErrorOf(Config(absl::StrCat(kIdentity, "shard_token_file: \"/s\" "))),
      "");
}

TEST(AccessConfigTest, TwoShardsHaveToKnowEachOther) {
  v1::JobConfig config = Config(kIdentity);
  config.add_shards("127.0.0.1:2");
  EXPECT_THAT(ErrorOf(WithDefaults(config)),
              HasSubstr("security.shard_token_file is \"\"; allowed: "));
  config.mutable_security()->set_shard_token_file("/s");
  EXPECT_TRUE(MakeServerOptions(WithDefaults(config)).ok());
}

TEST(AccessConfigTest, ShardsKnowEachOtherByCertificatesThatAreAskedFor) {
  v1::JobConfig config = Config(absl::StrCat(kTls, kShards));
  config.add_shards("127.0.0.1:2");
  EXPECT_TRUE(MakeServerOptions(config).ok())
      << MakeServerOptions(config).status();
  config.mutable_security()->mutable_tls()->set_ca("/ca");
  config.mutable_security()->mutable_tls()->clear_client_ca();
  EXPECT_THAT(ErrorOf(config),
              AllOf(HasSubstr("security.shard_token_file is \"\"; allowed: "),
                    HasSubstr("with security.tls.client_ca")));
}

TEST(AccessConfigTest, ACertificateAloneNeedsAClientCa) {
  EXPECT_THAT(
      ErrorOf(Config(kShards)),
      HasSubstr("security.identities[0].san[0] is \"spiffe://agg/shard/*\"; "
                "allowed: without a token_file: only with "
                "security.tls.client_ca"));
  EXPECT_EQ(ErrorOf(Config(absl::StrCat(kTls, kShards))), "");
  EXPECT_EQ(ErrorOf(Config("identities { name: \"a\" san: \"a.b\" "
                           "token_file: \"/a\" roles: \"worker\" } "
                           "shard_token_file: \"/s\"")),
            "");
}

TEST(AccessConfigTest, AShardsTokenDoesNotLeaveTheHostInClearText) {
  const std::string security =
      absl::StrCat(kIdentity, "shard_token_file: \"/s\" ");
  const auto error = [](const std::string& text) {
    v1::JobConfig config = Config(text);
    config.add_shards("[::1]:2");
    config.add_shards("10.0.0.2:1");
    return ErrorOf(config);
  };
  EXPECT_THAT(error(security),
              AllOf(HasSubstr("shards[2] is \"10.0.0.2:1\"; allowed: a "
                              "loopback address"),
                    Not(HasSubstr("shards[0]")), Not(HasSubstr("shards[1]"))));
  EXPECT_EQ(error(security + "insecure: true"), "");
  EXPECT_EQ(error(security + kTls), "");
}

TEST(AccessConfigTest, AShardTokenNeedsIdentities) {
  EXPECT_THAT(ErrorOf(Config("shard_token_file: \"/s\"")),
              HasSubstr("security.shard_token_file is \"/s\"; allowed: only "
                        "with security.identities"));
}

TEST(AccessConfigTest, TheFingerprintHasWhoMayDoWhatAndNoFiles) {
  const auto fingerprint = [](const std::string& security) {
    return ConfigFingerprint(Config(security));
  };
  const std::string worker =
      "identities { name: \"a\" san: \"a.b\" roles: \"worker\" } ";
  EXPECT_EQ(fingerprint(""), fingerprint("health: \"off\""));
  EXPECT_NE(fingerprint(""), fingerprint(worker));
  EXPECT_EQ(fingerprint(worker),
            fingerprint(absl::StrCat(
                "identities { name: \"a\" san: \"a.b\" token_file: \"/x\" "
                "roles: \"worker\" } audit { path: \"/y\" } "
                "shard_token_file: \"/z\"",
                kTls)));
  for (const char* other :
       {"identities { name: \"b\" san: \"a.b\" roles: \"worker\" } ",
        "identities { name: \"a\" san: \"a.*\" roles: \"worker\" } ",
        "identities { name: \"a\" san: \"a.b\" roles: \"admin\" } "}) {
    EXPECT_NE(fingerprint(worker), fingerprint(other)) << other;
  }
}

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

std::string LimitsErrorOf(const std::string& security) {
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
      LimitsErrorOf(
          "limits { max_sessions: 3 max_streams: 15 max_waiting_calls: 7 "
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
  EXPECT_THAT(LimitsErrorOf("limits { max_streams: -1 joins_per_second: nan "
                            "max_bytes_in_flight: 1000 max_connections: 2 }"),
              AllOf(HasSubstr("security.limits.max_streams is -1; allowed: 0 "
                              "(the default), or 16 to 1000000"),
                    HasSubstr("security.limits.joins_per_second is nan"),
                    HasSubstr("security.limits.max_bytes_in_flight is 1000"),
                    HasSubstr("security.limits.max_connections is 2")));
  EXPECT_THAT(
      LimitsErrorOf(
          "identities { name: \"a\" token_file: \"/a\" roles: \"worker\" "
          "limits { max_connections: 20 max_sessions: -2 } }"),
      AllOf(HasSubstr("security.identities[0].limits.max_connections is 20"),
            HasSubstr("security.identities[0].limits.max_sessions is -2")));
}

}  // namespace
}  // namespace agg
