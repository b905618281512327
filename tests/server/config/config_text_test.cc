#include "server/config/config_text.h"

#include <google/protobuf/util/message_differencer.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/field_error.h"
#include "server/config/options.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using ::google::protobuf::util::MessageDifferencer;

std::string ErrorOf(const std::string& text) {
  const absl::Status status = ParseJobConfig(text, "job.textproto").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(ConfigTextTest, ErrorsHaveLineAndColumn) {
  EXPECT_THAT(ErrorOf("workers: 1\nwrokers: 2\n"),
              HasSubstr("job.textproto:2:8: "));
  EXPECT_THAT(ErrorOf("workers: 1\nwrokers: 2\n"), HasSubstr("wrokers"));
  EXPECT_THAT(ErrorOf("workers: many"), HasSubstr("job.textproto:1:10: "));
  EXPECT_THAT(ErrorOf("workers: 1 workers: 2"), HasSubstr("job.textproto:1:"));
  EXPECT_THAT(ErrorOf("combination { rule: 'mean'"),
              HasSubstr("job.textproto"));
  EXPECT_THAT(ErrorOf("optimizer { beta3: 1 }"), HasSubstr("beta3"));
}

TEST(ConfigTextTest, AllUnknownFieldsAreNamedByLine) {
  const std::string text =
      "wrokers: 2\noptimizer { beta3: 1 kind: 'adam' }\nx { y: [1] }\n";
  EXPECT_THAT(ErrorOf(text),
              AllOf(HasSubstr("job.textproto:1:8: "), HasSubstr("\"wrokers\""),
                    HasSubstr("\njob.textproto:2:18: "), HasSubstr("\"beta3\""),
                    HasSubstr("\njob.textproto:3:3: "), HasSubstr("\"x\"")));
  FieldErrors unknown;
  const auto config = ParseJobConfig(text, "job.textproto", &unknown);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimizer().kind(), "adam");
  EXPECT_EQ(std::string(unknown.status().message()), ErrorOf(text));
}

TEST(ConfigTextTest, PrintedTextParsesToTheSame) {
  v1::JobConfig config = *ParseJobConfig(R"(
      job: "a\"b" workers: 3 shards: "h:1" shards: "h:2"
      combination { rule: "adacons" adacons { beta: 0 } }
      shadow_rules { rule: "adasum" } shadow_rules {}
      learning_rate { rate: 0.1 boundaries: [1, 2.5] }
      groups { name: "g" no_decay: true })",
                                         "test");
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<v1::JobConfig> again =
        ParseJobConfig(PrintJobConfig(config), "printed");
    ASSERT_TRUE(again.ok()) << again.status() << PrintJobConfig(config);
    EXPECT_TRUE(MessageDifferencer::Equals(config, *again))
        << PrintJobConfig(config);
    config = WithDefaults(config);
  }
}

TEST(ConfigTextTest, DefaultsAreShownAndIdempotent) {
  const v1::JobConfig config =
      WithDefaults(*ParseJobConfig("workers: 2", "test"));
  const std::string text = PrintJobConfig(config);
  EXPECT_THAT(text, HasSubstr("lease_seconds: 30\n"));
  EXPECT_THAT(text, HasSubstr("round_timeout_seconds: 0\n"));
  EXPECT_THAT(text, HasSubstr("  rule: \"mean\"\n"));
  EXPECT_THAT(text, HasSubstr("  clip_before_average: true\n"));
  EXPECT_TRUE(MessageDifferencer::Equals(config, WithDefaults(config)));
}

// A field is compared exactly if the fingerprint moves with it.
TEST(ConfigTextTest, FieldsHaveTheirPathsAndSayWhetherTheyAreCompared) {
  const v1::JobConfig config = WithDefaults(*ParseJobConfig(
      R"(workers: 2 shards: "a:1" shards: "b:2" groups { name: "g" }
      metrics { port: 9 } memory_budget_bytes: 7
      security { shard_token_file: "/s" identities {
        name: "w" roles: "worker" token_file: "/w"
        limits { max_streams: 9 } } })",
      "test"));
  std::map<std::string, FieldValue> fields;
  for (const FieldValue& field : FieldValues(config)) {
    EXPECT_TRUE(fields.emplace(field.path, field).second) << field.path;
  }
  const auto expect = [&](const std::string& path, const std::string& value,
                          bool compared) {
    ASSERT_EQ(fields.count(path), 1u) << path;
    EXPECT_EQ(fields[path].value, value) << path;
    EXPECT_EQ(fields[path].compared, compared) << path;
  };
  expect("workers", "2", true);
  expect("lease_seconds", "30", true);
  expect("groups[0].name", "\"g\"", true);
  expect("optimizer.kind", "\"sgd\"", true);
  expect("security.identities[0].name", "\"w\"", true);
  expect("security.identities[0].roles[0]", "\"worker\"", true);
  expect("security.identities[0].token_file", "\"/w\"", false);
  expect("security.identities[0].limits.max_streams", "9", false);
  expect("security.shard_token_file", "\"/s\"", false);
  expect("shards[1]", "\"b:2\"", false);
  expect("metrics.port", "9", false);
  expect("memory_budget_bytes", "7", false);
}

std::string FingerprintOf(const std::string& text) {
  return ConfigFingerprint(WithDefaults(*ParseJobConfig(text, "test")));
}

TEST(ConfigFingerprintTest, IsOfWhatShardsMustShare) {
  const std::string base = "workers: 2 learning_rate { rate: 0.1 }";
  const std::string fingerprint = FingerprintOf(base);
  EXPECT_EQ(fingerprint.size(), 16u);
  EXPECT_EQ(fingerprint, FingerprintOf(base + " lease_seconds: 30"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " shards: 'other:1'"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " metrics { port: 9 }"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " compute_threads: 7"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " device: 7"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " memory_budget_bytes: 7"));
  EXPECT_EQ(fingerprint,
            FingerprintOf(base + " device_memory_budget_bytes: 7"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " unix_socket: 'off'"));
  EXPECT_EQ(fingerprint, FingerprintOf(base + " shared_memory: 'off'"));
  EXPECT_NE(fingerprint, FingerprintOf(base + " max_rounds: 7"));
  EXPECT_NE(fingerprint, FingerprintOf(base + " job: 'x'"));
  EXPECT_NE(fingerprint, FingerprintOf(base + " push_dtype: 'bf16'"));
  EXPECT_NE(fingerprint,
            FingerprintOf("workers: 2 learning_rate { rate: 0.2 }"));
}

std::string PathOf(const std::string& name) {
  return ::testing::TempDir() + "/" + name;
}

std::string Written(const std::string& name, const std::string& text) {
  std::ofstream(PathOf(name)) << text;
  return PathOf(name);
}

void ExpectRefused(const std::string& path, const std::string& reason) {
  const absl::Status status = ReadConfigFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--config is \"" + path + "\" (" + reason),
                    HasSubstr("; allowed: a file")));
}

TEST(ConfigFileTest, ReadsAllOfIt) {
  const std::string text(100000, ' ');
  const auto read = ReadConfigFile(Written("long", text + "workers: 1\n"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text + "workers: 1\n");
}

TEST(ConfigFileTest, SaysWhatIsWrongWithTheFile) {
  ExpectRefused(::testing::TempDir(), "a folder");
  ExpectRefused(PathOf("missing"), "No such file or directory");
  ExpectRefused(Written("empty", ""), "empty");
  ExpectRefused(Written("blank", " \n\t\n"), "empty");
  ExpectRefused("/dev/zero", "more than 16777216 bytes");
  const std::string loop = PathOf("loop");
  unlink(loop.c_str());
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  ExpectRefused(loop, "Too many levels of symbolic links");
  // Can be opened, but not read at its start.
  ExpectRefused("/proc/self/mem", "Input/output error");
}

}  // namespace
}  // namespace agg
