// A job whose gradients are never finite: it says so once, and with powers of
// ten, and it ends.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/round_watches.h"
#include "server/round/round_report.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RoundReport Report(bool applied) {
  RoundReport report;
  report.applied = applied;
  report.rows.resize(2);
  report.message = "no row is finite";
  return report;
}

TEST(SkippedRunTest, CountsAndSaysWhatDeservesALine) {
  SkippedRun run(0);
  std::vector<uint64_t> lines;
  for (int i = 1; i <= 1000; ++i) {
    run.Note(Report(false));
    if (run.worth_a_line()) lines.push_back(run.length());
  }
  EXPECT_THAT(lines, ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(
      run.Text(),
      HasSubstr("the last 1000 rounds were skipped (no row is finite)"));
  EXPECT_EQ(run.FailureText(), "");  // 0: never
  RoundReport empty = Report(false);
  empty.rows.clear();
  run.Note(empty);
  EXPECT_EQ(run.length(), 1000u);
  run.Note(Report(true));
  EXPECT_EQ(run.length(), 0u);
  EXPECT_TRUE(run.worth_a_line());
  EXPECT_EQ(run.Text(), "");
}

TEST(SkippedRunTest, FailsAtTheLimit) {
  SkippedRun run(2);
  run.Note(Report(false));
  EXPECT_EQ(run.FailureText(), "");
  run.Note(Report(false));
  EXPECT_THAT(run.FailureText(),
              HasSubstr("2 rounds in a row were skipped (max_skipped_rounds)"));
}

RoundReport NotFinite(uint64_t round, const std::string& tensor) {
  RoundReport report = Report(true);
  report.round = round;
  report.not_finite = {tensor, 3};
  return report;
}

TEST(SkippedRunTest, NamesTheRoundThatMadeTheParametersNotFinite) {
  SkippedRun run(2);
  run.Note(Report(true));
  EXPECT_EQ(run.not_finite_length(), 0u);
  run.Note(NotFinite(7, "w"));
  EXPECT_TRUE(run.worth_a_line());
  EXPECT_EQ(run.not_finite_length(), 1u);
  EXPECT_EQ(run.FailureText(), "");
  EXPECT_THAT(run.Text(), HasSubstr("the parameters have not been finite since "
                                    "round 7 (tensor \"w\", shard 3); they "));
  run.Note(Report(false));
  // An update of parameters that were not finite already is not the cause.
  run.Note(NotFinite(9, "v"));
  EXPECT_EQ(run.not_finite_length(), 3u);
  EXPECT_EQ(run.length(), 0u);
  EXPECT_FALSE(run.worth_a_line());
  EXPECT_THAT(run.FailureText(),
              HasSubstr("it failed: the parameters have not been finite since "
                        "round 7 (tensor \"w\", shard 3), and 2 rounds came "
                        "after it (max_skipped_rounds); "));
  run.Note(Report(true));
  EXPECT_EQ(run.not_finite_length(), 0u);
  EXPECT_EQ(run.Text(), "");
  EXPECT_EQ(run.FailureText(), "");
}

// The rate fits float32, and so does the gradient; the step does not.
TEST(SkippedRunTest, ARateThatIsTooLargeIsNamedAsTheCause) {
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.coordinator.combine.schedule.learning_rate = 1e38;
  options.coordinator.max_skipped_rounds = 2;
  RunningJob job(options, MakeManifest({{3}, {3}}), 1);
  Tensors row = {{10, 10, 10}, {10, 10, 10}};
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  const OutcomeReply first = *job.workers[0].Contribute(0, row);
  job.cluster.Settle();
  ASSERT_TRUE(first.called());
  EXPECT_EQ(first.Get()->kind, OutcomeKind::kApplied);
  const std::string cause =
      "this round's update left parameters that are not finite: tensor \"t0\" "
      "(shard 0)";
  EXPECT_THAT(first.Get()->message, HasSubstr(cause));
  EXPECT_FALSE(first.Get()->finished);
  JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.not_finite_rounds, 1u);
  EXPECT_THAT(status.message,
              HasSubstr("the parameters have not been finite since round 0"));
  row[0][0] = std::numeric_limits<float>::quiet_NaN();
  for (uint64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(job.workers[0].Contribute(round, row).ok());
    job.cluster.Settle();
  }
  SetLogLevel(LogLevel::kError);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("W ] round 0: " + cause));
  EXPECT_EQ(log.find(cause), log.rfind(cause));
  status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished);
  EXPECT_EQ(status.not_finite_rounds, 3u);
  EXPECT_THAT(status.message,
              HasSubstr("it failed: the parameters have not been finite since "
                        "round 0 (tensor \"t0\", shard 0)"));
}

TEST(SkippedRunTest, EndsTheJob) {
  ClusterOptions options = MakeClusterOptions(1, 1);
  options.coordinator.max_skipped_rounds = 3;
  RunningJob job(options, MakeManifest({{3}}), 1);
  Tensors row = RandomTensors(job.manifest, 5);
  for (std::vector<float>& tensor : row) {
    std::fill(tensor.begin(), tensor.end(),
              std::numeric_limits<float>::quiet_NaN());
  }
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  for (uint64_t round = 0; round < 3; ++round) {
    const OutcomeReply reply = *job.workers[0].Contribute(round, row);
    job.cluster.Settle();
    ASSERT_TRUE(reply.called());
    EXPECT_EQ(reply.Get()->kind, OutcomeKind::kSkipped);
    EXPECT_EQ(reply.Get()->finished, round == 2);
    EXPECT_EQ(job.cluster.Status().consecutive_skipped_rounds, round + 1);
  }
  SetLogLevel(LogLevel::kError);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("W ] round 0: "));
  EXPECT_THAT(log, Not(HasSubstr("W ] round 1: ")));
  EXPECT_THAT(log,
              HasSubstr("E ] the job has finished at version 3: it failed: "
                        "3 rounds in a row were skipped"));
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished);
  EXPECT_THAT(status.message, HasSubstr("it failed: 3 rounds in a row"));
  const absl::Status late = job.workers[0].Join();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(late.message(), HasSubstr("(max_skipped_rounds)"));
}

}  // namespace
}  // namespace agg
