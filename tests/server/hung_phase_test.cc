#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/housekeeping.h"
#include "server/round/phase.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

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
