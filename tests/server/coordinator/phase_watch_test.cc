#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/coordinator/peer_group.h"
#include "server/round/phase.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Phase Close(uint64_t round) {
  Phase phase;
  phase.epoch = 4;
  phase.round = round;
  return phase;
}

class PhaseWatchTest : public testing::Test {
 protected:
  FakeClock clock_;
  PhaseWatch watch_{&clock_, absl::Minutes(1), {"shard 0", "shard 1 (h:2)"}};
};

TEST_F(PhaseWatchTest, NamesWhoIsLateOnce) {
  const PhaseWatch::Call other(&watch_, 0, Close(7));
  clock_.Advance(absl::Seconds(30));
  {
    const PhaseWatch::Call call(&watch_, 1, Close(7));
    clock_.Advance(absl::Seconds(29));
    EXPECT_THAT(watch_.TakeLate(), IsEmpty());
    clock_.Advance(absl::Seconds(31));
    const std::vector<LatePhase> late = watch_.TakeLate();
    ASSERT_THAT(late, SizeIs(2));
    EXPECT_EQ(late[1].shard, 1);
    EXPECT_EQ(late[1].epoch, 4u);
    EXPECT_EQ(late[1].text,
              "shard 1 (h:2) has not answered phase close of round 7 within "
              "1m (phase_timeout_seconds)");
    EXPECT_THAT(watch_.TakeLate(), IsEmpty());
    EXPECT_THAT(watch_.num_late(), ElementsAre(1, 1));
  }
  // Another call begins anew.
  const PhaseWatch::Call next(&watch_, 1, Close(8));
  EXPECT_THAT(watch_.TakeLate(), IsEmpty());
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(watch_.TakeLate(), SizeIs(1));
  EXPECT_THAT(watch_.num_late(), ElementsAre(1, 2));
}

TEST_F(PhaseWatchTest, SaysWhoIsWaitedForAndSinceWhen) {
  EXPECT_EQ(watch_.WaitingText(), "");
  Phase update = Close(7);
  update.kind = PhaseKind::kUpdate;
  const PhaseWatch::Call call(&watch_, 1, update);
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(watch_.WaitingText(), "");
  clock_.Advance(absl::Milliseconds(7300));
  EXPECT_EQ(watch_.WaitingText(),
            "round 7 has waited 12s for shard 1 (h:2) (phase update)");
  const PhaseWatch::Call other(&watch_, 0, update);
  clock_.Advance(absl::Seconds(6));
  EXPECT_EQ(watch_.WaitingText(),
            "round 7 has waited 18s for shard 0, shard 1 (h:2) (phase update)");
}

// What reads and fetches takes as long as it takes, while it moves.
TEST_F(PhaseWatchTest, WhatMakesProgressIsNotLateAndWhatStopsIs) {
  Phase recover = Close(0);
  recover.kind = PhaseKind::kRecover;
  const PhaseWatch::Call own(&watch_, 0, recover);
  const PhaseWatch::Call call(&watch_, 1, recover);
  uint64_t progress = 100;
  EXPECT_THAT(watch_.TakeLate({7, progress}), IsEmpty());
  for (int i = 0; i < 10; ++i) {
    clock_.Advance(absl::Seconds(59));
    // Shard 0 has a number that does not move.
    const std::vector<LatePhase> late = watch_.TakeLate({7, ++progress});
    ASSERT_THAT(late, SizeIs(i == 1 ? 1 : 0)) << i;
    if (i == 1) {
      EXPECT_EQ(late[0].shard, 0);
    }
  }
  clock_.Advance(absl::Seconds(59));
  EXPECT_THAT(watch_.TakeLate({7, progress}), IsEmpty());
  clock_.Advance(absl::Seconds(1));
  const std::vector<LatePhase> late = watch_.TakeLate({7, progress});
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].text,
            "shard 1 (h:2) has made no progress in phase recover of round 0 "
            "for 1m (phase_timeout_seconds)");
}

TEST_F(PhaseWatchTest, OtherCallsHaveTheirOwnNames) {
  const PhaseWatch::Call call(&watch_, 0, "reserve_row", 4);
  clock_.Advance(absl::Minutes(1));
  const std::vector<LatePhase> late = watch_.TakeLate();
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].text,
            "shard 0 has not answered reserve_row within 1m "
            "(phase_timeout_seconds)");
}

// P31: a coordinator that was frozen has waited for nobody meanwhile.
TEST_F(PhaseWatchTest, FrozenTimeDoesNotCount) {
  TickClock ticks(&clock_);
  PhaseWatch watch(&ticks, absl::Minutes(1), {"shard 0"});
  const PhaseWatch::Call call(&watch, 0, Close(7));
  clock_.Advance(absl::Hours(1));
  ticks.Tick();
  EXPECT_THAT(watch.TakeLate(), IsEmpty());
  for (int tick = 0; tick < 60; ++tick) {
    clock_.Advance(absl::Seconds(1));
    ticks.Tick();
  }
  EXPECT_THAT(watch.TakeLate(), SizeIs(1));
}

}  // namespace
}  // namespace agg
