// A shard that answers pings and no phase: its epoch ends, and everybody who
// looks learns which shard and which phase.
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/coordinator/coordinator.h"
#include "server/round/phase.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PhaseTimeoutTest : public testing::Test {
 protected:
  PhaseTimeoutTest()
      : job_(MakeClusterOptions(1, 1), MakeManifest({{40}, {7}}), 1) {}

  Coordinator* coordinator() { return job_.cluster.coordinator(); }

  RunningJob job_;
};

TEST_F(PhaseTimeoutTest, TheEpochEndsWithTheShardAndThePhaseNamed) {
  job_.RunRound(0);
  std::string waiting;
  job_.cluster.peer(0)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kUpdate) return;
    // The loop is in the phase; another thread looks at the deadlines.
    job_.cluster.clock()->Advance(absl::Minutes(9));
    coordinator()->CheckDeadlines();
    waiting = coordinator()->Status().message;
    EXPECT_EQ(coordinator()->Status().phase, JobPhase::kClosing);
    job_.cluster.clock()->Advance(absl::Minutes(1));
    coordinator()->CheckDeadlines();
  });
  const OutcomeReply reply =
      *job_.workers[0].Contribute(1, RandomTensors(job_.manifest, 2));
  coordinator()->RunOnce();
  EXPECT_EQ(waiting,
            "round 1 has waited 9m for shard 0 (this process) (phase update)");
  const absl::Status status = reply.Get().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("shard lost: shard 0 (this process) has not answered "
                        "phase update of round 1 within 10m"));
  const JobStatus lost = coordinator()->Status();
  EXPECT_EQ(lost.phase, JobPhase::kShardLost);
  EXPECT_EQ(lost.phase_timeouts.at(0), 1u);
  // Another epoch begins as after any lost shard.
  job_.cluster.peer(0)->BeforePhase(nullptr);
  job_.cluster.Advance(absl::Seconds(2));
  EXPECT_EQ(coordinator()->Status().phase, JobPhase::kOpen);
  EXPECT_EQ(coordinator()->Status().version, 1u);
  LocalWorker again(&job_.cluster, 0, job_.manifest);
  EXPECT_EQ(again.Join(), absl::OkStatus());
}

TEST_F(PhaseTimeoutTest, AnOrdinaryRoundIsNotMentioned) {
  job_.RunRound(0);
  coordinator()->CheckDeadlines();
  EXPECT_EQ(coordinator()->Status().message, "");
  EXPECT_THAT(coordinator()->Status().phase_timeouts, ElementsAre(0));
}

}  // namespace
}  // namespace agg
