// Rounds that close without the slowest: by a quorum, or by what the last
// rounds' rows took; through the coordinator, with a clock that stands still.
#include "server/coordinator/close_policy.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/round_report.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class QuorumTest : public testing::Test {
 protected:
  // Two shards, three workers.
  static ClusterOptions Options(int quorum) {
    ClusterOptions options = MakeClusterOptions(2, 3);
    options.coordinator.quorum = quorum;
    return options;
  }
  void Start(const ClusterOptions& options, int num_workers = 3) {
    job_ = std::make_unique<RunningJob>(options, MakeManifest({{3}, {2}}),
                                        num_workers);
  }
  LocalWorker& worker(int rank) { return job_->workers[rank]; }
  Tensors Row() { return RandomTensors(job_->manifest, 5); }
  // Settles.
  OutcomeReply Contribute(int rank, uint64_t round) {
    const OutcomeReply reply = *worker(rank).Contribute(round, Row());
    job_->cluster.Settle();
    return reply;
  }
  WorkerState State(int rank) {
    const JobStatus status = job_->cluster.Status();
    for (const WorkerState& worker : status.workers) {
      if (worker.rank == rank) return worker;
    }
    ADD_FAILURE() << "rank " << rank << " is not in";
    return {};
  }
  void Advance(absl::Duration time) { job_->cluster.Advance(time); }

  std::unique_ptr<RunningJob> job_;
};

TEST_F(QuorumTest, ClosesWithoutTheSlowestAndCountsIt) {
  Start(Options(2));
  const OutcomeReply first = Contribute(2, 0);
  Advance(absl::Seconds(1));
  EXPECT_FALSE(first.called());
  const OutcomeReply second = Contribute(0, 0);
  ASSERT_TRUE(first.called());
  EXPECT_THAT(first.Get()->ranks, ElementsAre(0, 2));
  EXPECT_TRUE(first.Get()->included);
  EXPECT_TRUE(second.Get()->included);
  EXPECT_EQ(State(1).late_rows, 0u);
  Advance(absl::Seconds(2));
  // P12: what comes late is acknowledged and dropped, and its worker is told.
  const OutcomeReply late = Contribute(1, 0);
  ASSERT_TRUE(late.called());
  EXPECT_FALSE(late.Get()->included);
  EXPECT_EQ(late.Get()->version, 1u);
  EXPECT_FALSE(worker(1).Commit(0).Get()->included);  // again
  EXPECT_EQ(State(1).late_rows, 1u);
  EXPECT_EQ(State(1).lateness, absl::Seconds(3));
  EXPECT_EQ(State(0).last_rows, 1u);
  EXPECT_EQ(State(0).late_rows, 0u);
  EXPECT_EQ(State(2).last_rows, 0u);
  // It takes part in the open round as ever.
  const OutcomeReply next = Contribute(1, 1);
  Contribute(0, 1);
  EXPECT_THAT(next.Get()->ranks, ElementsAre(0, 1));
}

// A repeat of a Commit that was answered is not late.
TEST_F(QuorumTest, WhoseRowIsInIsNotLate) {
  Start(Options(2));
  Contribute(0, 0);
  Contribute(1, 0);
  EXPECT_TRUE(worker(0).Commit(0).Get()->included);
  EXPECT_EQ(State(0).late_rows, 0u);
}

TEST_F(QuorumTest, ANumberAboveTheMembersMeansAllOfThem) {
  ClusterOptions options = Options(3);
  options.coordinator.min_workers = 1;
  options.coordinator.start_timeout = absl::Seconds(10);
  Start(options, 2);
  Advance(absl::Seconds(10));
  const OutcomeReply first = Contribute(0, 0);
  EXPECT_FALSE(first.called());
  Contribute(1, 0);
  ASSERT_TRUE(first.called());
  EXPECT_THAT(first.Get()->ranks, ElementsAre(0, 1));
}

TEST_F(QuorumTest, RoundZeroStillWaitsForAllToJoin) {
  Start(Options(1), 2);
  const OutcomeReply first = Contribute(0, 0);
  Advance(absl::Seconds(20));
  EXPECT_FALSE(first.called());
  LocalWorker third = Joined(&job_->cluster, 2, job_->manifest);
  job_->cluster.Settle();
  ASSERT_TRUE(first.called());
  EXPECT_THAT(first.Get()->ranks, ElementsAre(0));
}

TEST_F(QuorumTest, ARowOfAWorkerThatIsGoneCounts) {
  Start(Options(2));
  Contribute(0, 0);
  ASSERT_EQ(worker(0).Leave(), absl::OkStatus());
  const OutcomeReply second = Contribute(1, 0);
  ASSERT_TRUE(second.called());
  EXPECT_THAT(second.Get()->ranks, ElementsAre(0, 1));
}

TEST_F(QuorumTest, TheFloorCountsWorkersNotRows) {
  ClusterOptions options = Options(1);
  options.coordinator.min_workers = 2;
  options.coordinator.floor_policy = FloorPolicy::kWait;
  Start(options);
  // Three are in: one row is enough.
  EXPECT_TRUE(Contribute(0, 0).called());
  ASSERT_EQ(worker(1).Leave(), absl::OkStatus());
  ASSERT_EQ(worker(2).Leave(), absl::OkStatus());
  const OutcomeReply alone = Contribute(0, 1);
  Advance(absl::Seconds(5));
  EXPECT_FALSE(alone.called());
  ASSERT_EQ(worker(1).Join(), absl::OkStatus());
  job_->cluster.Settle();
  EXPECT_TRUE(alone.called());
}

// It was committed, so the round has closed; it goes on with the other.
TEST_F(QuorumTest, ARowThatIsLeftOutIsNotMadeUpFor) {
  Start(Options(2));
  Tensors row = Row();
  row[1][0] = std::numeric_limits<float>::quiet_NaN();
  const OutcomeReply left_out = *worker(0).Contribute(0, row);
  const OutcomeReply other = Contribute(1, 0);
  ASSERT_TRUE(other.called());
  EXPECT_THAT(other.Get()->ranks, ElementsAre(1));
  EXPECT_FALSE(left_out.Get()->included);
  EXPECT_TRUE(other.Get()->included);
  EXPECT_EQ(State(0).late_rows, 0u);  // it came in time
}

TEST_F(QuorumTest, ATimeoutClosesWithFewerRows) {
  ClusterOptions options = Options(2);
  options.coordinator.round_timeout = absl::Seconds(3);
  Start(options);
  const OutcomeReply alone = Contribute(1, 0);
  Advance(absl::Seconds(3));
  ASSERT_TRUE(alone.called());
  EXPECT_THAT(alone.Get()->ranks, ElementsAre(1));
}

// --- The timeout that follows the rows ---------------------------------------

TEST_F(QuorumTest, TheTimeoutFollowsTheLastRounds) {
  ClusterOptions options = Options(0);
  options.coordinator.round_timeout_mad = 4.0;
  options.coordinator.round_timeout = absl::Seconds(20);
  Start(options);
  const auto timeout = [this] { return job_->cluster.Status().round_timeout; };
  uint64_t round = 0;
  for (; round < 4; ++round) {
    EXPECT_EQ(timeout(), absl::Seconds(20));  // too little is known yet
    Contribute(0, round);
    Advance(absl::Seconds(1));
    Contribute(1, round);
    Advance(absl::Seconds(1));
    ASSERT_TRUE(Contribute(2, round).called());
  }
  // 1 and 2 seconds, four times: median 1.5, MAD 0.5.
  EXPECT_EQ(timeout(), absl::Seconds(3.5));
  const OutcomeReply first = Contribute(0, round);
  Contribute(1, round);
  Advance(absl::Seconds(3.4));
  EXPECT_FALSE(first.called());
  Advance(absl::Seconds(0.1));
  ASSERT_TRUE(first.called());
  EXPECT_THAT(first.Get()->ranks, ElementsAre(0, 1));
  EXPECT_FALSE(Contribute(2, round).Get()->included);
  EXPECT_EQ(State(2).late_rows, 1u);
  EXPECT_EQ(State(2).last_rows, 4u);
  EXPECT_EQ(State(2).lateness, absl::Seconds(2));
  EXPECT_EQ(State(1).lateness, absl::Seconds(1));
}

TEST_F(QuorumTest, NobodyComputesForLongerThanUsualBeforeTheFirstRow) {
  ClusterOptions options = Options(0);
  options.coordinator.round_timeout_mad = 4.0;
  Start(options);
  for (uint64_t round = 0; round < 4; ++round) job_->RunRound(round);
  EXPECT_EQ(job_->cluster.Status().round_timeout, absl::Milliseconds(10));
  // All are slow for once: the time is counted from the first row.
  Advance(absl::Seconds(5));
  const OutcomeReply first = Contribute(0, 4);
  EXPECT_FALSE(first.called());
  Contribute(1, 4);
  Contribute(2, 4);
  EXPECT_EQ(first.Get()->ranks.size(), 3u);
}

// A job that loses workers until fewer than min_workers are in: it waits, goes
// on with a warning, or fails; through the coordinator, with a clock that
// stands still.

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
  JobStatus Status() { return job_->cluster.Status(); }

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

// How late rows are, and what may be waited for; with times that are given.

constexpr absl::Time kStart = absl::UnixEpoch();
absl::Time At(int milliseconds) {
  return kStart + absl::Milliseconds(milliseconds);
}

// A round whose rows came so many milliseconds after kStart, by rank.
void Note(ArrivalTimes* arrivals, uint64_t round,
          const std::vector<int>& milliseconds) {
  std::vector<RowArrival> rows;
  for (int at : milliseconds) {
    rows.push_back({static_cast<int32_t>(rows.size()), At(at)});
  }
  arrivals->NoteRound(round, rows);
}

// --- The timeout -------------------------------------------------------------

TEST(ArrivalTimesTest, TheTimeoutIsMedianAndDeviation) {
  ArrivalTimes arrivals(5.0);
  // After the first row: 20, 30, 40 and 120; the first row itself is left out.
  Note(&arrivals, 0, {100, 120, 130, 140, 220});
  EXPECT_EQ(arrivals.Timeout(), absl::ZeroDuration());  // four rows tell little
  Note(&arrivals, 1, {620, 500, 530, 540, 520});
  // Median 35; the differences 15 5 5 85, twice: MAD 10.
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(85));
}

TEST(ArrivalTimesTest, WhatIsAsUsualIsNeverTooLate) {
  ArrivalTimes arrivals(5.0);
  for (uint64_t round = 0; round < 8; ++round) Note(&arrivals, round, {0, 300});
  // The deviation is 0.
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(600));
  ArrivalTimes together(5.0);
  for (uint64_t round = 0; round < 8; ++round) Note(&together, round, {7, 7});
  EXPECT_EQ(together.Timeout(), ArrivalTimes::kMinTimeout);
}

TEST(ArrivalTimesTest, WithoutAFactorThereIsNoTimeout) {
  ArrivalTimes arrivals(0.0);
  for (uint64_t round = 0; round < 8; ++round) Note(&arrivals, round, {0, 300});
  EXPECT_EQ(arrivals.Timeout(), absl::ZeroDuration());
  EXPECT_EQ(arrivals.Of(1).last_rows, 8u);
}

// After a recovery workers come back one by one.
TEST(ArrivalTimesTest, TheFirstRoundOfAnEpochHasNoTimeout) {
  ArrivalTimes arrivals(5.0);
  uint64_t round = 0;
  for (; round < 8; ++round) Note(&arrivals, round, {0, 300});
  arrivals.BeginEpoch(round);
  EXPECT_EQ(arrivals.Timeout(), absl::ZeroDuration());
  Note(&arrivals, round, {0, 9000});
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(600));
}

TEST(ArrivalTimesTest, OnlyTheLastRoundsCount) {
  ArrivalTimes arrivals(5.0);
  Note(&arrivals, 0, std::vector<int>(20, 9000));
  uint64_t round = 1;
  for (; round < 20; ++round) Note(&arrivals, round, {0, 1000});
  EXPECT_EQ(arrivals.Timeout(), absl::Seconds(2));
  for (int i = 0; i < ArrivalTimes::kNumRounds; ++i) {
    Note(&arrivals, round++, {0, 100});
  }
  EXPECT_EQ(arrivals.Timeout(), absl::Milliseconds(200));
}

// Else the timeout would only see what it let in, and become shorter and
// shorter.
TEST(ArrivalTimesTest, LateRowsCountOnceTheyAreHere) {
  ArrivalTimes arrivals(5.0);
  for (uint64_t round = 0; round < 16; ++round) {
    Note(&arrivals, round, {0, 100});
    arrivals.NoteLate(2, round, At(2000));
    arrivals.NoteLate(3, round, At(2000));
  }
  Note(&arrivals, 16, {0, 100});
  EXPECT_GE(arrivals.Timeout(), absl::Seconds(2));
}

// --- Workers -----------------------------------------------------------------

TEST(ArrivalTimesTest, CountsWhoCameLast) {
  ArrivalTimes arrivals(0.0);
  Note(&arrivals, 0, {0, 10, 30});
  Note(&arrivals, 1, {40, 10, 10});
  Note(&arrivals, 2, {10, 10, 90});
  arrivals.NoteRound(3, {{0, At(0)}});  // alone
  EXPECT_EQ(arrivals.Of(0).last_rows, 1u);
  EXPECT_EQ(arrivals.Of(1).last_rows, 0u);
  EXPECT_EQ(arrivals.Of(2).last_rows, 2u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::Milliseconds(30));
  EXPECT_EQ(arrivals.Of(1).lateness, absl::ZeroDuration());
  EXPECT_EQ(arrivals.Of(7).last_rows, 0u);
  EXPECT_EQ(arrivals.Of(7).lateness, absl::ZeroDuration());
}

TEST(ArrivalTimesTest, ALateRowCountsOnce) {
  ArrivalTimes arrivals(0.0);
  Note(&arrivals, 0, {0, 10});
  arrivals.NoteLate(2, 0, At(500));
  arrivals.NoteLate(2, 0, At(900));  // the worker repeats its call
  arrivals.NoteLate(1, 0, At(900));  // so does one whose row is in
  EXPECT_EQ(arrivals.Of(2).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::Milliseconds(500));
  EXPECT_EQ(arrivals.Of(1).late_rows, 0u);
  EXPECT_EQ(arrivals.Of(2).last_rows, 0u);
}

TEST(ArrivalTimesTest, ARowForTheClosingRoundIsLateOnceThatHasEnded) {
  ArrivalTimes arrivals(0.0);
  arrivals.BeginEpoch(4);
  arrivals.NoteLate(2, 4, At(50));
  arrivals.NoteLate(2, 4, At(80));
  EXPECT_EQ(arrivals.Of(2).late_rows, 0u);
  Note(&arrivals, 4, {0, 10});
  EXPECT_EQ(arrivals.Of(2).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::Milliseconds(50));
}

// The round is open again after a recovery, and takes the row.
TEST(ArrivalTimesTest, ARoundThatDidNotEndMakesNobodyLate) {
  ArrivalTimes arrivals(0.0);
  arrivals.NoteLate(2, 0, At(50));
  arrivals.BeginEpoch(0);
  Note(&arrivals, 0, {0, 10, 60});
  EXPECT_EQ(arrivals.Of(2).late_rows, 0u);
  EXPECT_EQ(arrivals.Of(2).last_rows, 1u);
}

// Its outcome was lost with the connection; the round may contain its row.
TEST(ArrivalTimesTest, ACommitThatIsRepeatedAfterARecoveryIsNotLate) {
  ArrivalTimes arrivals(0.0);
  arrivals.BeginEpoch(8);  // a new process: round 7 was closed by another one
  arrivals.NoteLate(1, 7, At(50));
  EXPECT_EQ(arrivals.Of(1).late_rows, 0u);
  Note(&arrivals, 8, {0, 10});
  arrivals.BeginEpoch(10);  // round 9 was published without a word here
  arrivals.NoteLate(1, 9, At(50));
  EXPECT_EQ(arrivals.Of(1).late_rows, 0u);
}

TEST(ArrivalTimesTest, AfterARewindRoundsCountAgain) {
  ArrivalTimes arrivals(0.0);
  for (uint64_t round = 0; round < 9; ++round) Note(&arrivals, round, {0, 10});
  arrivals.BeginEpoch(3);
  arrivals.NoteRound(3, {{0, At(10000)}});
  arrivals.NoteLate(1, 3, At(10400));
  EXPECT_EQ(arrivals.Of(1).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(1).last_rows, 9u);
}

// A gradient that is more rounds late than are looked back on.
TEST(ArrivalTimesTest, VeryLateRowsCountWithoutATime) {
  ArrivalTimes arrivals(0.0);
  for (uint64_t round = 0; round < 40; ++round) Note(&arrivals, round, {0, 10});
  arrivals.NoteLate(2, 1, At(5000));
  EXPECT_EQ(arrivals.Of(2).late_rows, 1u);
  EXPECT_EQ(arrivals.Of(2).lateness, absl::ZeroDuration());
}

}  // namespace
}  // namespace agg
