
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_text.h"
#include "server/config/options.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr char kTwoShards[] = "shards: 'h:1' shards: 'h:2' ";

absl::StatusOr<ServerOptions> Make(const std::string& text) {
  return MakeServerOptions(WithDefaults(*ParseJobConfig(
      absl::StrCat("workers: 1 learning_rate { rate: 0.1 } ", text), "test")));
}

std::string ErrorOf(const std::string& text) {
  const absl::Status status = Make(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(SurvivalConfigTest, Replication) {
  const auto options = Make(absl::StrCat(kTwoShards, "replication: 'buddy'"));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->coordinator.replicated);
  EXPECT_TRUE(options->shard.replicated);
  const auto none = Make(absl::StrCat(kTwoShards, "replication: 'none'"));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->shard.replicated);
}

TEST(SurvivalConfigTest, ASecondCopyIsTheDefaultWhereItCanBe) {
  EXPECT_TRUE(Make(kTwoShards)->shard.replicated);
  EXPECT_FALSE(Make("")->shard.replicated);
  EXPECT_FALSE(Make("shards: 'h:1'")->shard.replicated);
}

TEST(SurvivalConfigTest, ReplicationErrors) {
  EXPECT_EQ(ErrorOf("replication: 'raid'"),
            "replication is \"raid\"; allowed: \"none\", \"buddy\"");
  EXPECT_EQ(ErrorOf("replication: 'buddy'"),
            "replication is \"buddy\", and number of shards is 1; allowed: "
            "\"none\" with 1 shard, \"buddy\" with 2 or more");
}

TEST(SurvivalConfigTest, DefaultsOfCheckpoints) {
  const auto options = Make("checkpoint { path: '/ckpt' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->checkpoint_path, "/ckpt");
  const CheckpointOptions& checkpoint = options->coordinator.checkpoint;
  EXPECT_TRUE(checkpoint.enabled);
  EXPECT_EQ(checkpoint.every, absl::Seconds(600));
  EXPECT_EQ(checkpoint.every_rounds, 0u);
  EXPECT_EQ(checkpoint.keep, 3);
  EXPECT_TRUE(checkpoint.restore);
  EXPECT_EQ(checkpoint.config_text, options->config_text);
  EXPECT_THAT(options->config_text, HasSubstr("  every_seconds: 600\n"));
}

TEST(SurvivalConfigTest, ByRoundsOrByBothOrOnlyAtTheEnd) {
  const auto rounds = Make("checkpoint { path: 'c' every_rounds: 7 }");
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  EXPECT_EQ(rounds->coordinator.checkpoint.every, absl::ZeroDuration());
  EXPECT_EQ(rounds->coordinator.checkpoint.every_rounds, 7u);
  const auto both = Make(
      "checkpoint { path: 'c' every_rounds: 7 every_seconds: 1.5 keep: 1 "
      "restore: 'none' }");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->coordinator.checkpoint.every, absl::Seconds(1.5));
  EXPECT_EQ(both->coordinator.checkpoint.keep, 1);
  EXPECT_FALSE(both->coordinator.checkpoint.restore);
  const auto end = Make("checkpoint { path: 'c' every_seconds: 0 }");
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->coordinator.checkpoint.every, absl::ZeroDuration());
}

TEST(SurvivalConfigTest, CheckpointErrors) {
  EXPECT_EQ(ErrorOf("checkpoint { path: 'c' every_seconds: -1 keep: -2 "
                    "restore: 'oldest' }"),
            "checkpoint.every_seconds is -1; allowed: finite, >= 0 (0: not by "
            "time)\n"
            "checkpoint.keep is -2; allowed: >= 1\n"
            "checkpoint.restore is \"oldest\"; allowed: \"latest\", "
            "\"none\"");
  EXPECT_THAT(ErrorOf("checkpoint { path: 'c' every_seconds: inf }"),
              HasSubstr("checkpoint.every_seconds is inf"));
  EXPECT_THAT(ErrorOf("checkpoint { path: 'c' every_seconds: nan }"),
              HasSubstr("checkpoint.every_seconds is nan"));
  EXPECT_EQ(ErrorOf("job: '..' checkpoint { path: 'c' }"),
            "job is \"..\"; allowed: with checkpoints: a name of a folder");
  EXPECT_TRUE(Make("job: '..'").ok());
}

TEST(SurvivalConfigTest, AnotherJobsCheckpoints) {
  const auto options =
      Make("job: 'b' checkpoint { path: 'c' restore_job: 'a' }");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->coordinator.checkpoint.restore_job, "a");
  for (const char* other : {"b", "..", "a/b"}) {
    EXPECT_EQ(
        ErrorOf(absl::StrCat("job: 'b' checkpoint { path: 'c' restore_job: '",
                             other, "' }")),
        absl::StrCat("checkpoint.restore_job is \"", other,
                     "\"; allowed: the name of another job, a folder "
                     "below path"));
  }
  EXPECT_THAT(ErrorOf("checkpoint { path: 'c' restore: 'none' restore_job: "
                      "'a' }"),
              HasSubstr("only with restore \"latest\""));
  EXPECT_THAT(ErrorOf("checkpoint { restore_job: 'a' }"),
              HasSubstr("checkpoint.restore_job is \"a\"; allowed: only with "
                        "checkpoint.path"));
}

TEST(SurvivalConfigTest, NothingOfACheckpointMeansAnythingWithoutAPath) {
  EXPECT_EQ(ErrorOf("checkpoint { every_seconds: 60 every_rounds: 2 keep: 5 "
                    "restore: 'latest' }"),
            "checkpoint.every_seconds is 60; allowed: only with "
            "checkpoint.path\n"
            "checkpoint.every_rounds is 2; allowed: only with "
            "checkpoint.path\n"
            "checkpoint.keep is 5; allowed: only with checkpoint.path\n"
            "checkpoint.restore is \"latest\"; allowed: only with "
            "checkpoint.path");
  EXPECT_TRUE(Make("checkpoint {}").ok());
}

TEST(SurvivalConfigTest, FingerprintIsOfReplicationAlone) {
  const auto fingerprint = [](const std::string& text) {
    return Make(absl::StrCat(kTwoShards, text))->fingerprint;
  };
  EXPECT_EQ(fingerprint(""), fingerprint("replication: 'buddy'"));
  EXPECT_NE(fingerprint(""), fingerprint("replication: 'none'"));
  for (const char* fields : {"", "restore: 'none'", "every_seconds: 1",
                             "every_rounds: 2", "keep: 9"}) {
    EXPECT_EQ(fingerprint(""), fingerprint(absl::StrCat(
                                   "checkpoint { path: 'c' ", fields, " }")))
        << fields;
  }
}

TEST(SurvivalConfigTest, CompletingTwiceChangesNothing) {
  const v1::JobConfig once = WithDefaults(*ParseJobConfig(
      "workers: 1 checkpoint { path: 'c' every_rounds: 3 }", "test"));
  EXPECT_EQ(PrintJobConfig(once), PrintJobConfig(WithDefaults(once)));
  EXPECT_TRUE(absl::StrContains(PrintJobConfig(once), "every_seconds: 0\n"));
}

}  // namespace
}  // namespace agg
