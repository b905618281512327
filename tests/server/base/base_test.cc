// Mutex, clocks and log lines.
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace agg {
namespace {

TEST(FakeClockTest, StandsStillUntilToldOtherwise) {
  FakeClock clock;
  const absl::Time start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Now() - start, absl::Milliseconds(1500));
}

TEST(RealClockTest, NeverGoesBack) {
  absl::Time last = Clock::Real()->Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = Clock::Real()->Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(CondVarTest, HandsOverBetweenThreads) {
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  std::thread other([&] {
    MutexLock lock(&mutex);
    while (turn != 1) changed.Wait(&mutex);
    turn = 2;
    changed.NotifyAll();
  });
  {
    MutexLock lock(&mutex);
    turn = 1;
    changed.NotifyAll();
    // Endless timeouts are allowed.
    while (turn != 2) changed.WaitFor(&mutex, absl::InfiniteDuration());
  }
  other.join();
  EXPECT_EQ(turn, 2);
}

TEST(CondVarTest, ReturnsWhenTheTimeIsOver) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(&mutex);
  never.WaitFor(&mutex, absl::ZeroDuration());
  never.WaitFor(&mutex, -absl::InfiniteDuration());
}

TEST(LogTest, WritesOneNamedLine) {
  SetLogName("shard7");
  testing::internal::CaptureStderr();
  LogWarning("two\nlines ", 5);
  LogLine(LogLevel::kDebug, "below the level");
  const std::string lines = testing::internal::GetCapturedStderr();
  SetLogName("");
  EXPECT_THAT(lines, testing::ContainsRegex(
                         "^[0-9T:.-]+Z W shard7\\] two\\\\nlines 5\n$"));
}

std::string Logged(const std::string& message) {
  testing::internal::CaptureStderr();
  LogWarning(message);
  return testing::internal::GetCapturedStderr();
}

// What a peer has sent must not move a terminal's cursor or look like a line of
// its own.
TEST(LogTest, EscapesWhatCannotBePrinted) {
  EXPECT_THAT(Logged("a\x1b[2J\r\tb\x7f"),
              testing::HasSubstr("] a\\x1b[2J\\x0d\\x09b\\x7f\n"));
  EXPECT_THAT(Logged("\xff Gr\xc3\xb6\xc3\x9f"
                     "e \xc2\x85"),
              testing::HasSubstr("] \\xff Gr\xc3\xb6\xc3\x9f"
                                 "e \\u0085\n"));
}

TEST(LogTest, CutsALongMessage) {
  const std::string longest(8192, 'x');
  EXPECT_THAT(Logged(longest), testing::HasSubstr("] " + longest + "\n"));
  const std::string line = Logged(std::string(4000000, 'x'));
  EXPECT_LT(line.size(), 8300u);
  EXPECT_THAT(line, testing::HasSubstr("x [cut: 4000000 bytes]\n"));
}

TEST(LogTest, LevelsHaveNamesThatAreRead) {
  for (const char* name : {"debug", "info", "warning", "error"}) {
    LogLevel level;
    ASSERT_TRUE(ParseLogLevel(name, &level)) << name;
    SetLogLevel(level);
    EXPECT_EQ(LogLevelName(GetLogLevel()), name);
  }
  LogLevel level = LogLevel::kError;
  EXPECT_FALSE(ParseLogLevel("loud", &level));
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_EQ(level, LogLevel::kError);
  SetLogLevel(LogLevel::kInfo);
}

// Time that a process spent frozen does not count (P31).

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
