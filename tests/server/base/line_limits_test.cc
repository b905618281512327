#include "server/base/line_limits.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class LineLimitsTest : public ::testing::Test {
 protected:
  // What is written of that line, "" if nothing is; held lines in parentheses.
  std::string Take(const std::string& reason, const std::string& message,
                   int line = 0) {
    LogRecord record;
    record.message = message;
    record.line = line;
    if (!limits_.Take(reason, &record, now_, now_ + kWall)) return "";
    return Text(record);
  }

  std::vector<std::string> Due(absl::Time now) {
    std::vector<std::string> lines;
    for (const HeldLine& line : limits_.TakeDue(now)) {
      lines.push_back(Text(line.record));
    }
    return lines;
  }
  std::vector<std::string> Due() { return Due(now_); }

  static std::string Text(const LogRecord& record) {
    return absl::StrCat(record.message, "(", record.num_held_back, ")");
  }

  // Between the clock of the limits and the wall's.
  static constexpr absl::Duration kWall = absl::Hours(9);

  LineLimits limits_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(LineLimitsTest, TheFirstAndThenOneAMinuteWithTheNumberOfTheOthers) {
  EXPECT_EQ(Take("a", "1"), "1(0)");
  for (int i = 2; i <= 58; ++i) {
    now_ += absl::Seconds(1);
    EXPECT_EQ(Take("a", absl::StrCat(i)), "");
    EXPECT_THAT(Due(), IsEmpty());
  }
  now_ = absl::UnixEpoch() + LineLimits::kInterval;
  EXPECT_THAT(Due(), ElementsAre("58(56)"));
  EXPECT_EQ(limits_.num_dropped(), 56u);
  EXPECT_EQ(Take("a", "59"), "");
  now_ += LineLimits::kInterval;
  EXPECT_THAT(Due(), ElementsAre("59(0)"));
  // It was quiet for a minute: the next one is a first one.
  now_ += LineLimits::kInterval;
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_EQ(Take("a", "60"), "60(0)");
}

TEST_F(LineLimitsTest, ALineInTimeHasTheNumberToo) {
  EXPECT_EQ(Take("a", "1"), "1(0)");
  EXPECT_EQ(Take("a", "2"), "");
  EXPECT_EQ(Take("a", "3"), "");
  now_ += LineLimits::kInterval;
  EXPECT_EQ(Take("a", "4"), "4(2)");
  EXPECT_EQ(limits_.num_dropped(), 2u);
  EXPECT_THAT(Due(absl::InfiniteFuture()), IsEmpty());
}

TEST_F(LineLimitsTest, EachReasonHasItsOwnLines) {
  EXPECT_EQ(Take("rank 1", "a"), "a(0)");
  EXPECT_EQ(Take("rank 2", "b"), "b(0)");
  EXPECT_EQ(Take("rank 1", "c"), "");
  EXPECT_EQ(Take("rank 2", "d"), "");
  EXPECT_THAT(Due(absl::InfiniteFuture()), ElementsAre("c(0)", "d(0)"));
}

TEST_F(LineLimitsTest, AtTheEndNothingIsLeft) {
  Take("a", "1");
  for (int i = 2; i <= 9; ++i) Take("a", absl::StrCat(i));
  EXPECT_THAT(Due(absl::InfiniteFuture()), ElementsAre("9(7)"));
  EXPECT_THAT(Due(absl::InfiniteFuture()), IsEmpty());
  EXPECT_EQ(Take("a", "10"), "10(0)");
}

// A peer that can put something into a reason.
TEST_F(LineLimitsTest, ReasonsWithoutEndAreOneReason) {
  constexpr int kMost = static_cast<int>(LineLimits::kMaxReasons);
  int num_written = 0;
  for (int i = 0; i < 10 * kMost; ++i) {
    if (!Take(absl::StrCat("reason ", i), absl::StrCat(i)).empty()) {
      ++num_written;
    }
  }
  EXPECT_EQ(num_written, kMost + 1);
  now_ += LineLimits::kInterval;
  EXPECT_THAT(Due(), ElementsAre(absl::StrCat(10 * kMost - 1, "(",
                                              9 * kMost - 2, ")")));
  // Reasons that are over make room.
  EXPECT_EQ(Take("new", "x"), "x(0)");
  EXPECT_EQ(Take("new", "x"), "");
  EXPECT_EQ(Take("newer", "y"), "y(0)");
}

// Whose reasons have used the table up holds back nobody else's lines.
TEST_F(LineLimitsTest, BeyondTheTableEachPlaceIsAReason) {
  constexpr int kMost = static_cast<int>(LineLimits::kMaxReasons);
  for (int i = 0; i <= kMost; ++i) Take(absl::StrCat("reason ", i), "a", 1);
  EXPECT_EQ(Take("one more", "a", 1), "");
  EXPECT_EQ(Take("another", "b", 2), "b(0)");
  EXPECT_EQ(Take("yet another", "c", 2), "");
  EXPECT_THAT(Due(absl::InfiniteFuture()), ElementsAre("a(0)", "c(0)"));
}

TEST_F(LineLimitsTest, HeldLinesComeAsTheyWereSaid) {
  Take("a", "1");
  Take("b", "2");
  now_ += absl::Seconds(1);
  EXPECT_EQ(Take("b", "3"), "");
  const absl::Time said = now_ + kWall;
  now_ += absl::Seconds(1);
  EXPECT_EQ(Take("a", "4"), "");
  now_ += LineLimits::kInterval;
  const std::vector<HeldLine> due = limits_.TakeDue(now_);
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].record.message, "3");
  EXPECT_EQ(due[0].said, said);
  EXPECT_EQ(due[1].record.message, "4");
  EXPECT_EQ(due[1].said, said + absl::Seconds(1));
}

TEST_F(LineLimitsTest, AFullTableMakesRoomByItself) {
  constexpr int kMost = static_cast<int>(LineLimits::kMaxReasons);
  for (int i = 0; i < kMost; ++i) Take(absl::StrCat("reason ", i), "a");
  now_ += LineLimits::kInterval;
  EXPECT_EQ(Take("b", "b"), "b(0)");
  EXPECT_EQ(Take("c", "c"), "c(0)");
}

TEST(WithoutNumbersTest, EachNumberIsOneMark) {
  EXPECT_EQ(WithoutNumbers("round 12 of shard 3 (10.0.0.1:80)"),
            "round # of shard # (#.#.#.#:#)");
  EXPECT_EQ(WithoutNumbers(""), "");
}

// The log of a process that limits its lines, which is a process of its own:
// it does so until its end.
TEST(LimitedLogDeathTest, HoldsBackUntilItIsFlushed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto log = [] {
    LogWarningOf("before", "not limited");
    LogWarningOf("before", "not limited");
    LimitLogLines();
    for (int i = 1; i <= 5; ++i) LogWarningOf("flood", "flood ", i);
    LogWarning("between");
    FlushLog(absl::Seconds(10));
    std::exit(HeldBackLogLines() == 3 ? 0 : 1);
  };
  EXPECT_EXIT(log(), ::testing::ExitedWithCode(0),
              "not limited\n.*not limited\n.*flood 1\n.*between\n.*"
              "flood 5 \\(3 more like it held back\\)\n");
}

}  // namespace
}  // namespace agg
