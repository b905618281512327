// A backend that hangs in a phase: what a shard says about it, and its end.
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/round/phase.h"
#include "server/shard/shard_engine.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

TEST(HangTest, ThePhaseThatRunsIsKnown) {
  RunningJob job(MakeClusterOptions(1, 1), MakeManifest({{40}}), 1);
  ShardEngine* const engine = job.cluster.engine(0);
  EXPECT_FALSE(engine->running_phase().has_value());
  std::optional<RunningPhase> running;
  // Answered within the phase that publishes the version.
  engine->Pull(0, 1, false, [&](const absl::StatusOr<PublishedVersion>&) {
    running = engine->running_phase();
  });
  job.RunRound(0);
  ASSERT_TRUE(running.has_value());
  EXPECT_EQ(running->kind, PhaseKind::kUpdate);
  EXPECT_EQ(running->round, 0u);
  EXPECT_GT(running->number, 1u);
  EXPECT_FALSE(engine->running_phase().has_value());
}

TEST(HangTest, IsTheEndOfTheShardsProcess) {
  std::vector<absl::Status> ends;
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.on_device_lost = [&](const absl::Status& status) {
    ends.push_back(status);
  };
  RunningJob job(options, MakeManifest({{40}, {7}}), 1);
  const uint64_t epoch = job.workers[0].joined().epoch;
  job.cluster.engine(1)->ReportHang(
      absl::UnavailableError("phase close of round 0 hangs"));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0],
            absl::UnavailableError("shard 1: phase close of round 0 hangs"));
  job.cluster.Settle();
  EXPECT_EQ(job.cluster.coordinator()->Status().phase, JobPhase::kShardLost);
  EXPECT_EQ(job.cluster.engine(1)->Attach(epoch + 1, nullptr).status(),
            ends[0]);
}

}  // namespace
}  // namespace agg
