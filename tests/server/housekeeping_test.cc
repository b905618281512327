#include "server/housekeeping.h"

#include "gtest/gtest.h"
#include "server/base/job_phase.h"

namespace agg {
namespace {

TEST(HealthTest, OfAShard) {
  ShardStatus shard;
  EXPECT_FALSE(HealthOf(shard, nullptr).process);
  shard.attached = true;
  shard.published = true;
  EXPECT_FALSE(HealthOf(shard, nullptr).process) << "it is recovered";
  EXPECT_FALSE(HealthOf(shard, nullptr).shard);
  shard.published = false;
  shard.open = true;
  EXPECT_TRUE(HealthOf(shard, nullptr).process);
  EXPECT_FALSE(HealthOf(shard, nullptr).coordinator);
  EXPECT_FALSE(HealthOf(shard, nullptr).shard);
  shard.published = true;
  EXPECT_TRUE(HealthOf(shard, nullptr).shard);
}

TEST(HealthTest, OfTheCoordinator) {
  ShardStatus shard;
  shard.attached = true;
  JobStatus job;
  for (const JobPhase phase : {JobPhase::kUnseeded, JobPhase::kOpen,
                               JobPhase::kClosing, JobPhase::kFinished}) {
    job.phase = phase;
    EXPECT_TRUE(HealthOf(shard, &job).process) << PhaseName(phase);
    EXPECT_TRUE(HealthOf(shard, &job).coordinator) << PhaseName(phase);
  }
  for (const JobPhase phase : {JobPhase::kWaitingForShards,
                               JobPhase::kShardLost, JobPhase::kDraining}) {
    job.phase = phase;
    EXPECT_FALSE(HealthOf(shard, &job).process) << PhaseName(phase);
    EXPECT_FALSE(HealthOf(shard, &job).coordinator) << PhaseName(phase);
  }
}

TEST(ReadinessTest, SaysWhyAShardIsNotReady) {
  ShardStatus shard;
  const absl::Status status = ReadinessOf(shard, nullptr, "agg-0:50051");
  EXPECT_EQ(status, absl::UnavailableError(
                        "not attached to the coordinator (agg-0:50051) yet"));
  shard.attached = true;
  shard.epoch = 7;
  EXPECT_EQ(ReadinessOf(shard, nullptr, "agg-0:50051"),
            absl::UnavailableError("recovering: epoch 7 is not open yet"));
  shard.open = true;
  EXPECT_EQ(ReadinessOf(shard, nullptr, "agg-0:50051"), absl::OkStatus());
}

TEST(ReadinessTest, SaysWhyAJobIsNotReady) {
  JobStatus job;
  job.phase = JobPhase::kWaitingForShards;
  EXPECT_EQ(ReadinessOf(ShardStatus(), &job, ""),
            absl::UnavailableError("waiting_for_shards"));
  job.phase = JobPhase::kShardLost;
  job.message = "shard 2 is lost";
  EXPECT_EQ(ReadinessOf(ShardStatus(), &job, ""),
            absl::UnavailableError("shard_lost: shard 2 is lost"));
  job.phase = JobPhase::kOpen;
  EXPECT_EQ(ReadinessOf(ShardStatus(), &job, ""), absl::OkStatus());
}

}  // namespace
}  // namespace agg
