#include "server/metrics/scrape_watch.h"

#include <atomic>
#include <string>
#include <thread>  // NOLINT

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"

namespace agg {
namespace {

class ScrapeWatchTest : public ::testing::Test {
 protected:
  // One that is sent at once, from a port that nobody has had before.
  void Scrape(const std::string& host = "ipv4:10.0.0.1") {
    watch_.OnScrape(absl::StrCat(host, ":", ++port_))();
  }

  // Whether anybody is waited for now.
  bool IsAwaited() const { return watch_.NextDue() > clock_.Now(); }

  FakeClock clock_;
  ScrapeWatch watch_{&clock_};
  int port_ = 40000;
};

TEST_F(ScrapeWatchTest, NobodyIsWaitedForWhoDoesNotComeRegularly) {
  EXPECT_FALSE(IsAwaited());
  Scrape();
  EXPECT_FALSE(IsAwaited());
  // A person who looks twice in a day.
  clock_.Advance(ScrapeWatch::kMaxInterval + absl::Seconds(1));
  Scrape();
  EXPECT_FALSE(IsAwaited());
  // Two hosts, each of which came once.
  clock_.Advance(absl::Hours(1));
  Scrape("ipv4:10.0.0.2");
  EXPECT_FALSE(IsAwaited());
}

TEST_F(ScrapeWatchTest, OneThatIsLateByHalfAnIntervalHasGone) {
  Scrape();
  clock_.Advance(absl::Seconds(10));
  Scrape();
  watch_.BeginStop();
  EXPECT_EQ(watch_.NextDue(), clock_.Now() + absl::Seconds(15));
  clock_.Advance(absl::Seconds(14));
  EXPECT_TRUE(IsAwaited());
  clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(IsAwaited());
  watch_.AwaitScrapes(absl::InfiniteFuture());
}

TEST_F(ScrapeWatchTest, OneThatHasSeenTheStopIsNotWaitedFor) {
  EXPECT_FALSE(watch_.stopping());
  Scrape();
  clock_.Advance(absl::Seconds(10));
  Scrape();
  watch_.BeginStop();
  EXPECT_TRUE(watch_.stopping());
  clock_.Advance(absl::Seconds(10));
  Scrape();
  EXPECT_FALSE(IsAwaited());
}

// The text that it gets was made before, or may have been.
TEST_F(ScrapeWatchTest, AScrapeThatBeganBeforeTheStopHasNotSeenIt) {
  Scrape();
  clock_.Advance(absl::Seconds(10));
  const auto sent = watch_.OnScrape("ipv4:10.0.0.1:1");
  watch_.BeginStop();
  sent();
  EXPECT_TRUE(IsAwaited());
  // Nor has one whose connection broke.
  watch_.OnScrape("ipv4:10.0.0.1:2");
  EXPECT_TRUE(IsAwaited());
}

// Two of them, so that one may fail: each raises alerts.
TEST_F(ScrapeWatchTest, EachHostIsWaitedFor) {
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(absl::Seconds(8));
    Scrape("ipv4:10.0.0.1");
    clock_.Advance(absl::Seconds(2));
    Scrape("ipv6:[fe80::2]");
  }
  watch_.BeginStop();
  clock_.Advance(absl::Seconds(8));
  Scrape("ipv4:10.0.0.1");
  EXPECT_EQ(watch_.NextDue(), clock_.Now() + absl::Seconds(7));
  clock_.Advance(absl::Seconds(2));
  Scrape("ipv6:[fe80::2]");
  EXPECT_FALSE(IsAwaited());
}

TEST_F(ScrapeWatchTest, OfManyHostsTheLastOnesAreKnown) {
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i <= ScrapeWatch::kMaxHosts; ++i) {
      clock_.Advance(absl::Seconds(1));
      Scrape(absl::StrCat("ipv4:10.0.0.", i));
    }
  }
  // Each had been forgotten before it came again.
  EXPECT_FALSE(IsAwaited());
  clock_.Advance(absl::Seconds(1));
  Scrape(absl::StrCat("ipv4:10.0.0.", ScrapeWatch::kMaxHosts));
  EXPECT_TRUE(IsAwaited());
}

TEST_F(ScrapeWatchTest, TheWaitEndsWithTheScrape) {
  Scrape();
  clock_.Advance(absl::Seconds(10));
  Scrape();
  watch_.BeginStop();
  watch_.AwaitScrapes(clock_.Now());  // it has no time left
  std::atomic<bool> ended{false};
  std::thread waits([&] {
    watch_.AwaitScrapes(clock_.Now() + absl::Seconds(12));
    ended = true;
  });
  EXPECT_FALSE(ended);
  Scrape();
  waits.join();
  EXPECT_TRUE(ended);
}

TEST_F(ScrapeWatchTest, TheWaitEndsAtItsLimit) {
  Scrape();
  clock_.Advance(absl::Seconds(10));
  Scrape();
  watch_.BeginStop();
  const absl::Time limit = clock_.Now() + absl::Seconds(12);
  std::thread waits([&] { watch_.AwaitScrapes(limit); });
  clock_.Advance(absl::Seconds(12));
  waits.join();
  EXPECT_TRUE(IsAwaited());
}

}  // namespace
}  // namespace agg
