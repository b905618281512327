#include "server/tools/run_report.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round_log/record_file.h"
#include "server/round_log/round_record.h"
#include "tests/server/round_log/logged_rounds.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A log of the rounds 0 to num_rounds - 1.
std::string MakeLog(const std::string& name, uint64_t num_rounds,
                    const RunDescription& run = SomeRun()) {
  const std::string path = FreshPath(name);
  auto file = RecordFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  for (uint64_t round = 0; round < num_rounds; ++round) {
    v1::RoundLogRecord record = ToProto(SomeRound(round));
    if (round == 0) *record.mutable_run() = ToProto(run);
    EXPECT_TRUE((*file)->Append(record.SerializeAsString()).ok());
  }
  return path;
}

// A log with a round for each rule.
std::string MakeRuleLog(const std::string& name,
                        const std::vector<std::string>& rules) {
  const std::string path = FreshPath(name);
  auto file = RecordFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  for (uint64_t round = 0; round < rules.size(); ++round) {
    RoundReport report = SomeRound(round);
    report.combination.rule = rules[round];
    v1::RoundLogRecord record = ToProto(report);
    if (round == 0) *record.mutable_run() = ToProto(SomeRun());
    EXPECT_TRUE((*file)->Append(record.SerializeAsString()).ok());
  }
  return path;
}

// What the first record of MakeLog takes: it alone describes the run.
size_t FirstRecordBytes() {
  return FileBytes(MakeLog("one_record.binlog", 1)).size();
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

TEST(RunReportTest, HoldsTheRun) {
  RunReport report;
  ASSERT_TRUE(report.AddLog(MakeLog("run.binlog", 3)).ok());
  const absl::StatusOr<std::string> html = report.Html();
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, HasSubstr("\"job\":\"digits\",\"version\":\"1.2.3\""));
  EXPECT_THAT(*html, HasSubstr("\"applied\":3,\"skipped\":0"));
  EXPECT_EQ(Count(*html, "{\"seq\":"), 3u);
  EXPECT_THAT(*html, HasSubstr("[\"rounds\",\"3\"]"));
  EXPECT_THAT(*html, HasSubstr("[\"rounds per second\",\"1\"]"));
  EXPECT_THAT(*html, HasSubstr("[\"examples used\",\"51\"]"));
  EXPECT_THAT(*html, HasSubstr("[\"final orthogonality\",\"0.8\"],"
                               "[\"final gain\",\"1.7\"],"
                               "[\"final loss\",\"0.75\"],"
                               "[\"final learning rate\",\"0.15\"],"
                               "[\"scale-invariant iterations\",\"12.3\"],"
                               "[\"final useful workers\",\"9.05882\"]"));
  EXPECT_THAT(*html, HasSubstr("[\"model\",\"15 parameters in 2 tensors\"]"));
  EXPECT_THAT(*html, HasSubstr("job: \\\"digits\\\"\\nworkers: 3"));
  EXPECT_THAT(*html, Not(HasSubstr("id=\"data\">null<")));
  // A tensor is called a<b>&": it stays data.
  EXPECT_THAT(*html, Not(HasSubstr("a<b>")));
  EXPECT_THAT(*html, Not(HasSubstr("\"left out\"")));
}

TEST(RunReportTest, LongRunsAreThinnedOut) {
  constexpr uint64_t kRounds = 2 * kMaxReportRounds + 2;
  RunReport report;
  ASSERT_TRUE(report.AddLog(MakeLog("long.binlog", kRounds)).ok());
  const absl::StatusOr<std::string> html = report.Html();
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, HasSubstr("[\"pictures show\",\"one round in 4\"]"));
  EXPECT_THAT(*html, HasSubstr("\"applied\":8194,"));
  // The first, then every fourth, and the last one.
  EXPECT_THAT(*html, HasSubstr("\"rounds\":[{\"seq\":1,\"round\":0,"));
  EXPECT_THAT(*html, HasSubstr("{\"seq\":5,\"round\":4,"));
  EXPECT_THAT(*html, Not(HasSubstr("\"round\":2,")));
  EXPECT_THAT(*html, HasSubstr("{\"seq\":8194,\"round\":8193,"));
  EXPECT_EQ(Count(*html, "{\"seq\":"), 8192u / 4 + 2);
}

TEST(RunReportTest, ACutLogIsReadUpToThere) {
  const std::string path = MakeLog("cut_run.binlog", 3);
  const std::string bytes = FileBytes(path);
  WriteFileBytes(path, bytes.substr(0, bytes.size() - 5));
  RunReport report;
  ASSERT_TRUE(report.AddLog(path).ok());
  const absl::StatusOr<std::string> html = report.Html();
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_EQ(Count(*html, "{\"seq\":"), 2u);
  EXPECT_THAT(*html, HasSubstr("\"left out\",\"an unfinished record"));
  const size_t record = (bytes.size() - FirstRecordBytes()) / 2;
  EXPECT_THAT(report.notes(),
              ElementsAre(AllOf(
                  HasSubstr(path),
                  HasSubstr(absl::StrCat("the last ", record - 5, " bytes")))));
  // Another model's log that follows does not make the cut one complete.
  RunDescription other = SomeRun();
  other.tensors = {{"new", 5}, {"bias", 3}};
  ASSERT_TRUE(report.AddLog(MakeLog("after_cut.binlog", 1, other)).ok());
  EXPECT_EQ(report.notes().size(), 1u);
  EXPECT_THAT(*report.Html(), HasSubstr("\"left out\""));
}

TEST(RunReportTest, TheTitleNamesEachRuleOfTheRun) {
  const auto report_of = [](const std::vector<std::string>& rules) {
    RunReport report;
    EXPECT_TRUE(report.AddLog(MakeRuleLog("rules.binlog", rules)).ok());
    return *report.Html();
  };
  EXPECT_THAT(report_of({"mean", "mean"}),
              AllOf(HasSubstr("\"combined\":\"mean, per_tensor, step scale "
                              "adascale\""),
                    Not(HasSubstr("\"combined by\""))));
  EXPECT_THAT(
      report_of({"mean", "mean", "adasum"}),
      AllOf(HasSubstr("\"combined\":\"mean, per_tensor, step scale adascale; "
                      "from round 2 on: adasum, per_tensor, step scale "
                      "adascale\""),
            HasSubstr("[\"combined by\",\"from round 0 on: mean,")));
  EXPECT_THAT(report_of({"mean", "adasum", "mean"}),
              HasSubstr("\"combined\":\"rule changed 2 times (see Run), last: "
                        "mean,"));
  std::vector<std::string> many;
  for (size_t i = 0; i < 2 * kMaxReportChanges; ++i) {
    many.push_back(i % 2 == 0 ? "mean" : "sum");
  }
  EXPECT_THAT(report_of(many), AllOf(HasSubstr("rule changed 39 times"),
                                     HasSubstr("; and 19 more changes\"")));
}

TEST(RunReportTest, OnlyTheLastModel) {
  RunDescription other = SomeRun();
  other.tensors = {{"new", 5}, {"bias", 3}};
  RunReport report;
  ASSERT_TRUE(report.AddLog(MakeLog("old_model.binlog", 3)).ok());
  ASSERT_TRUE(report.AddLog(MakeLog("new_model.binlog", 2, other)).ok());
  const absl::StatusOr<std::string> html = report.Html();
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, HasSubstr("\"tensors\":[\"new\",\"bias\"]"));
  EXPECT_THAT(*html, HasSubstr("[\"rounds\",\"2\"]"));
}

TEST(RunReportTest, Errors) {
  RunReport report;
  EXPECT_TRUE(absl::IsFailedPrecondition(report.Html().status()));
  EXPECT_TRUE(absl::IsNotFound(report.AddLog("/no/such/log")));
  const std::string path = FreshPath("no_log.txt");
  WriteFileBytes(path, "this is no log");
  const absl::Status status = report.AddLog(path);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

}  // namespace
}  // namespace agg
