// Time that a process spent frozen does not count (P31).

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"

namespace agg {
namespace {

class TickClockTest : public testing::Test {
 protected:
  absl::Duration Passed() const { return clock_.Now() - start_; }

  FakeClock base_;
  TickClock clock_{&base_};
  const absl::Time start_ = base_.Now();
};

TEST_F(TickClockTest, FollowsItsBaseWhileItTicks) {
  for (int i = 0; i < 10; ++i) {
    base_.Advance(absl::Milliseconds(500));
    EXPECT_EQ(clock_.Now(), base_.Now());
    base_.Advance(absl::Milliseconds(700));
    clock_.Tick();
    EXPECT_EQ(clock_.Now(), base_.Now());
  }
}

TEST_F(TickClockTest, ATickCountsTwoSecondsAtMost) {
  base_.Advance(absl::Seconds(1));
  clock_.Tick();
  base_.Advance(absl::Hours(3));  // frozen
  EXPECT_EQ(Passed(), absl::Seconds(3));
  clock_.Tick();
  EXPECT_EQ(Passed(), absl::Seconds(3));
  base_.Advance(absl::Seconds(1));
  EXPECT_EQ(Passed(), absl::Seconds(4));
}

TEST_F(TickClockTest, NeverGoesBack) {
  absl::Time last = clock_.Now();
  for (int i = 0; i < 100; ++i) {
    base_.Advance(absl::Milliseconds(i * 97 % 3001));
    if (i % 3 == 0) clock_.Tick();
    EXPECT_GE(clock_.Now(), last);
    last = clock_.Now();
  }
}

TEST(RealTickClockTest, Runs) {
  const Clock* clock = TickClock::Real();
  EXPECT_EQ(clock, TickClock::Real());
  const absl::Time before = clock->Now();
  EXPECT_GE(clock->Now(), before);
}

}  // namespace
}  // namespace agg
