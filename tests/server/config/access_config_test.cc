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
#include "server/config/security_config.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

}  // namespace
}  // namespace agg
