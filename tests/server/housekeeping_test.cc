#include "server/housekeeping.h"

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(HealthTest, OfAShard) {
  ShardStatus shard;
  EXPECT_FALSE(HealthOf(shard, nullptr).process);
  shard.attached = true;
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
  for (const char* phase : {"unseeded", "open", "closing", "finished"}) {
    job.phase = phase;
    EXPECT_TRUE(HealthOf(shard, &job).process) << phase;
    EXPECT_TRUE(HealthOf(shard, &job).coordinator) << phase;
  }
  for (const char* phase : {"waiting_for_shards", "shard_lost", "draining"}) {
    job.phase = phase;
    EXPECT_FALSE(HealthOf(shard, &job).process) << phase;
    EXPECT_FALSE(HealthOf(shard, &job).coordinator) << phase;
  }
}

}  // namespace
}  // namespace agg
