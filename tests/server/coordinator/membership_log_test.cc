// What the log says of who comes and goes, and of the job's end: one line each.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_types.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::Not;

ClusterOptions Options() {
  ClusterOptions options = MakeClusterOptions(1, 2);
  options.coordinator.max_rounds = 2;
  return options;
}

class MembershipLogTest : public testing::Test {
 protected:
  MembershipLogTest() : job_(Options(), MakeManifest({{3}}), 2) {
    SetLogLevel(LogLevel::kInfo);
    testing::internal::CaptureStderr();
  }
  ~MembershipLogTest() override { SetLogLevel(LogLevel::kError); }

  static std::string Log() { return testing::internal::GetCapturedStderr(); }
  Coordinator* coordinator() { return job_.cluster.coordinator(); }
  uint64_t Attend(int rank) {
    return coordinator()
        ->Attend(job_.workers[rank].joined().epoch,
                 job_.workers[rank].session(),
                 [this](const JobEvent& event) { events_.push_back(event); })
        .value_or(0);
  }

  std::vector<JobEvent> events_;  // of all that attend
  RunningJob job_;
};

TEST_F(MembershipLogTest, SaysWhoJoinedAndWhoLeft) {
  ASSERT_EQ(job_.workers[1].Leave(), absl::OkStatus());
  ASSERT_EQ(job_.workers[1].Join(), absl::OkStatus());
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr(" I ] rank 1 (test worker 1) has left the job; "
                             "1 of 2 workers are in"));
  EXPECT_THAT(
      log,
      HasSubstr(" I ] rank 1 joined (test worker 1); 2 of 2 workers are in; "
                "its first round is 1"));
}

TEST_F(MembershipLogTest, SaysWhoseLeaseRanOut) {
  job_.cluster.Advance(absl::Seconds(30));
  const std::string log = Log();
  EXPECT_THAT(
      log,
      HasSubstr(" W ] rank 0 (test worker 0) is lost: its lease of 30s has run "
                "out; 0 of 2 workers are in"));
  EXPECT_THAT(log, HasSubstr("rank 1 (test worker 1) is lost"));
}

TEST_F(MembershipLogTest, SaysWhoseConnectionBroke) {
  const uint64_t first = Attend(0);
  coordinator()->Detach(Attend(1));
  coordinator()->Detach(first);
  Attend(0);  // back in the grace
  job_.cluster.Advance(absl::Seconds(5));
  const std::string log = Log();
  EXPECT_THAT(
      log,
      HasSubstr("W ] rank 1 (test worker 1) is lost: its connection broke, and "
                "it was not back within reconnect_grace (5s); "
                "1 of 2 workers are in"));
  EXPECT_THAT(log, Not(HasSubstr("rank 0")));
  // Who is in hears it, too.
  ASSERT_THAT(events_, testing::SizeIs(1));
  EXPECT_EQ(events_[0].kind, JobEventKind::kWorkerLost);
  EXPECT_THAT(
      events_[0].message,
      HasSubstr("rank 1 (test worker 1) is lost: its connection broke"));
}

TEST_F(MembershipLogTest, NobodyIsToldOfOneThatHasLeft) {
  Attend(0);
  ASSERT_EQ(job_.workers[1].Leave(), absl::OkStatus());
  Log();
  EXPECT_THAT(events_, testing::IsEmpty());
}

TEST_F(MembershipLogTest, SaysWhoWasEvictedOrSuperseded) {
  coordinator()->Evict(0, "stalled", [](absl::StatusOr<Eviction>) {});
  job_.cluster.Settle();
  LocalWorker successor(&job_.cluster, 1, job_.manifest);
  ASSERT_EQ(successor.Join(), absl::OkStatus());
  const std::string log = Log();
  EXPECT_THAT(log,
              HasSubstr(" W ] rank 0 (test worker 0) was evicted: stalled; "
                        "1 of 2 workers are in"));
  EXPECT_THAT(
      log,
      HasSubstr(" W ] rank 1 (test worker 1) was superseded: another session "
                "joined with this rank; 1 of 2"));
}

TEST_F(MembershipLogTest, SaysWhyTheJobEnded) {
  job_.RunRound(0);
  job_.RunRound(1);
  EXPECT_THAT(Log(), HasSubstr(" I ] the job has finished at version 2: "
                               "max_rounds (2) is reached; epoch "));
  EXPECT_THAT(job_.workers[0].Join().message(),
              HasSubstr("the job has finished at version 2: max_rounds (2)"));
}

TEST_F(MembershipLogTest, SaysThatTheLastWorkerLeft) {
  for (LocalWorker& worker : job_.workers) {
    ASSERT_EQ(worker.Leave(), absl::OkStatus());
  }
  EXPECT_THAT(Log(), HasSubstr("finished at version 0: the last worker has "
                               "left; epoch "));
}

}  // namespace
}  // namespace agg
