#include "server/config/access_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"
#include "server/base/field_error.h"
#include "server/config/config_defaults.h"
#include "server/config/config_text.h"
#include "server/config/options.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] =
    "workers: 1 learning_rate { rate: 1 } shards: \"127.0.0.1:1\" ";
constexpr char kIdentity[] =
    "identities { name: \"a\" token_file: \"/a\" roles: \"worker\" } ";

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
      "health: \"off\" audit { path: \"/audit\" }"));
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

TEST(AccessConfigTest, TwoShardsHaveToKnowEachOther) {
  v1::JobConfig config = Config(kIdentity);
  config.add_shards("127.0.0.1:2");
  EXPECT_THAT(ErrorOf(WithDefaults(config)),
              HasSubstr("security.shard_token_file is \"\"; allowed: "));
  config.mutable_security()->set_shard_token_file("/s");
  EXPECT_TRUE(MakeServerOptions(WithDefaults(config)).ok());
  config.mutable_security()->clear_shard_token_file();
  v1::IdentityConfig* shard = config.mutable_security()->add_identities();
  shard->set_name("shards");
  shard->add_san("spiffe://agg/shard/*");
  shard->add_roles("shard");
  EXPECT_TRUE(MakeServerOptions(WithDefaults(config)).ok());
}

TEST(AccessConfigTest, AShardTokenNeedsIdentities) {
  EXPECT_THAT(ErrorOf(Config("shard_token_file: \"/s\"")),
              HasSubstr("security.shard_token_file is \"/s\"; allowed: only "
                        "with security.identities"));
}

TEST(AccessConfigTest, TheFingerprintIsWithoutIt) {
  EXPECT_EQ(ConfigFingerprint(Config("")),
            ConfigFingerprint(Config(kIdentity)));
}

TEST(CheckTokensStayPrivateTest, TokensNeedLoopbackTlsOrInsecure) {
  AccessOptions options;
  options.identities = {{"a", {}, "/a", {Role::kWorker}}};
  const std::string all = "0.0.0.0";
  EXPECT_TRUE(CheckTokensStayPrivate(options, false, "127.0.0.1").ok());
  EXPECT_THAT(CheckTokensStayPrivate(options, false, all).message(),
              HasSubstr("0.0.0.0; allowed: a loopback address"));
  EXPECT_TRUE(CheckTokensStayPrivate(options, true, all).ok());
  options.insecure = true;
  EXPECT_TRUE(CheckTokensStayPrivate(options, false, all).ok());
  options.insecure = false;
  options.identities[0].token_file = "";
  options.identities[0].sans = {"x"};
  EXPECT_TRUE(CheckTokensStayPrivate(options, false, all).ok());
}

}  // namespace
}  // namespace agg
