#include "server/config/security_config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_text.h"
#include "server/config/options.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace agg
