// Which jobs may be pipelined: each reason why not, by its field.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_text.h"
#include "server/config/options.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ServerOptions> Options(const std::string& text) {
  absl::StatusOr<v1::JobConfig> config = ParseJobConfig(
      absl::StrCat("workers: 2 shards: \"h:1\" shards: \"h:2\" ", text),
      "test");
  if (!config.ok()) return config.status();
  return MakeServerOptions(WithDefaults(*config));
}

constexpr char kPipelined[] = "publish: \"pipelined\" ";
constexpr char kCommon[] = "replication: \"none\" learning_rate { rate: 0.1 } ";

TEST(PublishConfigTest, TheDefaultIsAtomic) {
  const auto options = Options("learning_rate { rate: 0.1 }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->shard.pipelined);
  EXPECT_FALSE(options->coordinator.pipelined);
  EXPECT_TRUE(options->shard.early_gram);
}

TEST(PublishConfigTest, RulesPerTensorMayBePipelined) {
  for (const char* rule : {"sum", "mean", "weighted_mean", "unit_mean",
                           "adasum", "adasum_counted"}) {
    const auto options = Options(absl::StrCat(
        kPipelined, kCommon, "combination { rule: \"", rule, "\" }"));
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE(options->shard.pipelined);
    EXPECT_TRUE(options->coordinator.pipelined);
    EXPECT_FALSE(options->shard.early_gram);
  }
}

TEST(PublishConfigTest, NamesWhatIsInTheWay) {
  const struct {
    const char* config;
    const char* error;
  } cases[] = {
      {"combination { rule: \"adacons\" scope: \"per_tensor\" }",
       "combination.rule is \"adacons\"; allowed: with publish \"pipelined\": "
       "\"sum\", "},
      {"combination { rule: \"mean\" scope: \"global\" }",
       "combination.scope is \"global\"; allowed: with publish \"pipelined\": "
       "\"per_tensor\""},
      {"combination { rule: \"krum\" }",
       "combination.scope is \"global\"; allowed: with publish \"pipelined\": "
       "\"per_tensor\""},
      {"clip_norm: 2",
       "clip_norm is 2; allowed: with publish \"pipelined\": 0"},
      {"step_scale { kind: \"adascale\" }", "step_scale.kind is \"adascale\""},
      {"optimizer { kind: \"lamb\" }", "optimizer.kind is \"lamb\""},
      {"backend: \"cuda\"", "backend is \"cuda\""},
      {"quorum: 1", "quorum is 1"},
      {"round_timeout_seconds: 3", "round_timeout_seconds is 3"},
      {"round_timeout_mad: 5", "round_timeout_mad is 5"},
  };
  for (const auto& test : cases) {
    const auto options =
        Options(absl::StrCat(kPipelined, kCommon, test.config));
    ASSERT_FALSE(options.ok()) << test.config;
    EXPECT_THAT(options.status().message(), HasSubstr(test.error));
  }
}

TEST(PublishConfigTest, OutliersAreInTheWay) {
  v1::JobConfig config =
      *ParseJobConfig(absl::StrCat("workers: 4 ", kPipelined, kCommon), "test");
  EXPECT_TRUE(MakeServerOptions(WithDefaults(config)).ok());
  config.mutable_outliers();
  EXPECT_THAT(MakeServerOptions(WithDefaults(config)).status().message(),
              HasSubstr("outliers is set; allowed: to be left out with publish "
                        "\"pipelined\""));
}

TEST(PublishConfigTest, SecondCopiesAreInTheWay) {
  EXPECT_THAT(Options(absl::StrCat(kPipelined, "learning_rate { rate: 0.1 }"))
                  .status()
                  .message(),
              HasSubstr("replication is \"buddy\"; allowed: with publish "
                        "\"pipelined\": \"none\""));
}

TEST(PublishConfigTest, NamesAreKnown) {
  EXPECT_THAT(
      Options(absl::StrCat("publish: \"eager\" ", kCommon)).status().message(),
      HasSubstr("publish is \"eager\"; allowed: \"atomic\", \"pipelined\""));
}

}  // namespace
}  // namespace agg
