// A job that loses workers until fewer than min_workers are in: it waits, goes
// on with a warning, or fails; through the coordinator, with a clock that
// stands still.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/round_report.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;

ClusterOptions Options(FloorPolicy policy) {
  ClusterOptions options = MakeClusterOptions(1, 3);
  options.coordinator.min_workers = 2;
  options.coordinator.floor_policy = policy;
  options.coordinator.floor_timeout = absl::Seconds(60);
  return options;
}

class FloorTest : public testing::Test {
 protected:
  // Three workers have done round 0 and are lost; then rank 0 is back.
  void LoseAllButOne(FloorPolicy policy) {
    job_ =
        std::make_unique<RunningJob>(Options(policy), MakeManifest({{3}}), 3);
    job_->RunRound(0);
    SetLogLevel(LogLevel::kInfo);
    testing::internal::CaptureStderr();
    job_->cluster.Advance(absl::Seconds(30));
    ASSERT_EQ(worker(0).Join(), absl::OkStatus());
    ASSERT_EQ(worker(0).joined().first_round, 1u);
  }
  std::string Log() {
    SetLogLevel(LogLevel::kError);
    return testing::internal::GetCapturedStderr();
  }
  LocalWorker& worker(int rank) { return job_->workers[rank]; }
  OutcomeReply Contribute(int rank, uint64_t round) {
    const OutcomeReply reply =
        *worker(rank).Contribute(round, RandomTensors(job_->manifest, 5));
    job_->cluster.Settle();
    return reply;
  }
  JobStatus Status() { return job_->cluster.coordinator()->Status(); }

  std::unique_ptr<RunningJob> job_;
};

TEST_F(FloorTest, WaitsUntilEnoughAreInAgain) {
  LoseAllButOne(FloorPolicy::kWait);
  const OutcomeReply alone = Contribute(0, 1);
  job_->cluster.Advance(absl::Seconds(20));
  EXPECT_FALSE(alone.called());
  EXPECT_EQ(Status().min_workers, 2);
  EXPECT_TRUE(Status().below_floor);
  for (const EndedWorkers& ended : Status().ended_workers) {
    EXPECT_EQ(ended.number, ended.reason == "lease_expired" ? 3u : 0u)
        << ended.reason;
  }
  EXPECT_EQ(Status().below_floor_for, absl::Seconds(20));
  EXPECT_THAT(Status().message,
              HasSubstr("waits: 1 of at least 2 workers (min_workers)"));
  // The next one is in the open round, which would be one row's otherwise.
  ASSERT_EQ(worker(2).Join(), absl::OkStatus());
  EXPECT_EQ(worker(2).joined().first_round, 1u);
  EXPECT_FALSE(alone.called());
  Contribute(2, 1);
  ASSERT_TRUE(alone.called());
  EXPECT_EQ(alone.Get()->ranks.size(), 2u);
  EXPECT_FALSE(Status().below_floor);
  EXPECT_EQ(Status().message, "");
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("W ] the job waits: 0 of at least 2 workers"));
  EXPECT_THAT(log, HasSubstr("W ] the job waits: 1 of at least 2 workers"));
  // And who is in hears it.
  EXPECT_THAT(log, HasSubstr("W ] round 1 waits: 1 of at least 2 workers"));
  EXPECT_THAT(log, HasSubstr("I ] 2 workers are in, as min_workers (2) asks"));
}

// For whom the audit is.
TEST_F(FloorTest, EachWorkerThatIsLostIsTold) {
  job_ = std::make_unique<RunningJob>(Options(FloorPolicy::kWait),
                                      MakeManifest({{3}}), 3);
  job_->RunRound(0);
  std::map<int32_t, std::string> lost;
  std::set<uint64_t> sessions;
  job_->cluster.coordinator()->SetOnLost(
      [&](const Departure& departure, const std::string& what) {
        lost[departure.rank] = what;
        sessions.insert(departure.session);
      });
  ASSERT_EQ(worker(1).Leave(), absl::OkStatus());
  job_->cluster.Settle();
  EXPECT_TRUE(lost.empty());  // that one has said so
  job_->cluster.Advance(absl::Seconds(30));
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0], "is lost: its lease of 30s has run out");
  EXPECT_EQ(lost.count(2), 1u);
  EXPECT_EQ(sessions,
            (std::set<uint64_t>{worker(0).session(), worker(2).session()}));
}

TEST_F(FloorTest, GoesOnWithAWarning) {
  LoseAllButOne(FloorPolicy::kWarn);
  EXPECT_TRUE(Contribute(0, 1).called());
  EXPECT_THAT(Status().message,
              HasSubstr("goes on with 1 of at least 2 workers"));
  EXPECT_THAT(Log(), HasSubstr("W ] the job goes on with 1 of at least 2"));
}

TEST_F(FloorTest, FailsAfterTheTimeout) {
  LoseAllButOne(FloorPolicy::kFail);
  const OutcomeReply alone = Contribute(0, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(alone.called());
    ASSERT_TRUE(job_->cluster.coordinator()
                    ->Renew(worker(0).joined().epoch, worker(0).session())
                    .ok());
    job_->cluster.Advance(absl::Seconds(20));
  }
  ASSERT_TRUE(alone.called());
  const absl::Status status = alone.Get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("the job has finished at version 1: it failed: for 1m "
                        "(floor_timeout_seconds) there were only 1 of at "
                        "least 2 workers (min_workers)"));
  EXPECT_EQ(Status().phase, JobPhase::kFinished);
  EXPECT_THAT(Status().message, HasSubstr("it failed: for 1m"));
  EXPECT_TRUE(Status().failed);
  EXPECT_EQ(worker(1).Join().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Log(), HasSubstr("E ] the job has finished at version 1: it "
                               "failed"));
}

}  // namespace
}  // namespace agg
