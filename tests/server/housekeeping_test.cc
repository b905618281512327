#include "server/housekeeping.h"

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/round/phase.h"
#include "server/shard/shard_engine.h"

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

TEST(HungPhaseTest, SaysOnceThatAPhaseHangs) {
  HungPhase hung(absl::Minutes(10));
  const absl::Time start = absl::FromUnixSeconds(1000);
  EXPECT_EQ(hung.Look(std::nullopt, start), "");
  const RunningPhase phase = {1, PhaseKind::kUpdate, 7};
  EXPECT_EQ(hung.Look(phase, start + absl::Hours(1)), "");
  EXPECT_EQ(hung.Look(phase, start + absl::Minutes(69)), "");
  EXPECT_EQ(hung.Look(phase, start + absl::Minutes(70)),
            "phase update of round 7 has hung for 10m (phase_timeout_seconds)");
  EXPECT_EQ(hung.Look(phase, start + absl::Minutes(71)), "");
}

TEST(HungPhaseTest, AnotherPhaseBeginsAnew) {
  HungPhase hung(absl::Minutes(10));
  const absl::Time start = absl::FromUnixSeconds(1000);
  for (uint64_t number = 1; number < 5; ++number) {
    const RunningPhase phase = {number, PhaseKind::kClose, number};
    const absl::Time begin =
        start + static_cast<double>(number) * absl::Minutes(9);
    EXPECT_EQ(hung.Look(phase, begin), "");
    EXPECT_EQ(hung.Look(phase, begin + absl::Minutes(9)), "");
  }
}

// A checkpoint that takes long to read ends no shard; a read that hangs does.
TEST(HungPhaseTest, WhatMakesProgressDoesNotHang) {
  HungPhase hung(absl::Seconds(5));
  absl::Time now = absl::FromUnixSeconds(1000);
  RunningPhase phase = {1, PhaseKind::kRecover, 0};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(hung.Look(phase, now), "");
    ++phase.progress;
    now += absl::Seconds(4);
  }
  EXPECT_EQ(hung.Look(phase, now), "");
  EXPECT_EQ(hung.Look(phase, now + absl::Seconds(4)), "");
  EXPECT_EQ(hung.Look(phase, now + absl::Seconds(5)),
            "phase recover of round 0 has hung for 5s (phase_timeout_seconds)");
}

}  // namespace
}  // namespace agg
