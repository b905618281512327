#include "tests/bench/link_queue.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr absl::Time kStart = absl::UnixEpoch();

// 8 Mbit/s: a byte each microsecond.
LinkOptions Options() {
  LinkOptions options;
  options.bits_per_second = 8000000;
  options.delay = absl::Milliseconds(10);
  options.queue_bytes = 10000;
  return options;
}

absl::Time At(double microseconds) {
  return kStart + absl::Microseconds(microseconds);
}

std::string Packet(char name, size_t size) { return std::string(size, name); }

// The names of all that has come out by `now`.
std::string Names(LinkQueue* link, absl::Time now) {
  std::string names, packet;
  while (link->Pop(now, &packet)) names += packet[0];
  return names;
}

TEST(LinkQueueTest, APacketComesOutSentAndDelayed) {
  LinkQueue link(Options());
  EXPECT_EQ(link.next_due(), absl::InfiniteFuture());
  link.Push(At(5), Packet('a', 1000));
  EXPECT_EQ(link.next_due(), At(5 + 1000 + 10000));
  EXPECT_EQ(Names(&link, At(11004)), "");
  EXPECT_EQ(Names(&link, At(11005)), "a");
  EXPECT_EQ(link.next_due(), absl::InfiniteFuture());
  EXPECT_EQ(Names(&link, absl::InfiniteFuture()), "");
}

TEST(LinkQueueTest, PacketsAreSentOneAfterTheOther) {
  LinkQueue link(Options());
  link.Push(At(0), Packet('a', 1000));
  link.Push(At(0), Packet('b', 500));
  link.Push(At(1200), Packet('c', 100));  // behind b, which ends at 1500
  link.Push(At(5000), Packet('d', 100));  // the link was idle
  EXPECT_EQ(Names(&link, At(11000)), "a");
  EXPECT_EQ(Names(&link, At(11499)), "");
  EXPECT_EQ(Names(&link, At(11500)), "b");
  EXPECT_EQ(Names(&link, At(11600)), "c");
  EXPECT_EQ(Names(&link, At(15099)), "");
  EXPECT_EQ(Names(&link, At(15100)), "d");
}

// The delay adds no time between packets.
TEST(LinkQueueTest, ABacklogComesOutAtTheRate) {
  LinkOptions options = Options();
  options.bits_per_second = 1000000000;
  options.queue_bytes = 1500 * 1000;
  LinkQueue link(options);
  for (int i = 0; i < 1000; ++i) link.Push(At(0), Packet('a', 1500));
  const absl::Time first = link.next_due();
  EXPECT_EQ(first, At(12 + 10000));
  EXPECT_EQ(Names(&link, first + 499 * absl::Microseconds(12)).size(), 500u);
  EXPECT_EQ(Names(&link, first + 999 * absl::Microseconds(12)).size(), 500u);
  EXPECT_EQ(link.counts().bytes, 1500 * 1000);
}

TEST(LinkQueueTest, DropsWhatTheQueueHasNoRoomFor) {
  LinkQueue link(Options());
  for (const char name : std::string("abcdefghij")) {
    link.Push(At(0), Packet(name, 1000));
  }
  link.Push(At(0), Packet('x', 1));
  EXPECT_EQ(link.counts().dropped, 1);
  link.Push(At(999), Packet('y', 1000));  // one byte is still to be sent
  EXPECT_EQ(link.counts().dropped, 2);
  link.Push(At(999), Packet('z', 999));
  EXPECT_EQ(link.counts().dropped, 2);
  // What is dropped takes no time.
  EXPECT_EQ(Names(&link, At(20000)), "abcdefghij");
  EXPECT_EQ(link.next_due(), At(20999));
}

TEST(LinkQueueTest, LosesItsShareByTheSeed) {
  LinkOptions options = Options();
  options.loss = 0.001;
  constexpr int kPackets = 1000000;
  std::vector<int64_t> lost;
  for (const uint64_t seed : {1, 1, 2}) {
    options.seed = seed;
    LinkQueue link(options);
    int64_t out = 0;
    std::string packet;
    for (int i = 0; i < kPackets; ++i) {
      link.Push(At(i), "x");
      while (link.Pop(At(i), &packet)) ++out;
    }
    while (link.Pop(At(1e9), &packet)) ++out;
    EXPECT_EQ(link.counts().dropped, 0);
    EXPECT_EQ(out + link.counts().lost, kPackets);
    // Six standard deviations of a binomial distribution.
    const double deviation = std::sqrt(kPackets * 0.001 * 0.999);
    EXPECT_NEAR(link.counts().lost, kPackets * 0.001, 6 * deviation);
    lost.push_back(link.counts().lost);
  }
  EXPECT_EQ(lost[0], lost[1]);
  EXPECT_NE(lost[0], lost[2]);
}

// It is lost behind the queue: a link that loses much is not faster.
TEST(LinkQueueTest, WhatIsLostTakesItsTime) {
  LinkOptions options = Options();
  options.loss = 0.5;
  LinkQueue link(options);
  for (int i = 0; i < 10; ++i) link.Push(At(0), Packet('a', 1000));
  ASSERT_GT(link.counts().lost, 0);
  ASSERT_LT(link.counts().lost, 10);
  link.Push(At(0), "x");
  EXPECT_EQ(link.counts().dropped, 1);
}

TEST(LinkQueueTest, CountsHowLateItWasAsked) {
  LinkQueue link(Options());
  link.Push(At(0), Packet('a', 1000));
  link.Push(At(0), Packet('b', 1000));
  EXPECT_EQ(Names(&link, At(12500)), "ab");
  EXPECT_EQ(link.counts().latest, absl::Microseconds(1500));
  EXPECT_EQ(link.counts().all_late, absl::Microseconds(2000));
}

TEST(LinkQueueTest, RefusesOptionsByName) {
  EXPECT_TRUE(CheckLinkOptions(Options()).ok());
  LinkOptions options = Options();
  options.bits_per_second = 0;
  EXPECT_THAT(CheckLinkOptions(options).ToString(),
              HasSubstr("bits_per_second is 0; allowed: 1 to"));
  options = Options();
  options.delay = absl::Milliseconds(-1);
  EXPECT_THAT(CheckLinkOptions(options).ToString(), HasSubstr("delay is -1ms"));
  options = Options();
  options.loss = 1;
  EXPECT_THAT(CheckLinkOptions(options).ToString(), HasSubstr("loss is 1;"));
  options.loss = std::nan("");
  EXPECT_THAT(CheckLinkOptions(options).ToString(), HasSubstr("loss is nan;"));
  options = Options();
  options.queue_bytes = 0;
  EXPECT_THAT(CheckLinkOptions(options).ToString(),
              HasSubstr("queue_bytes is 0; allowed"));
}

}  // namespace
}  // namespace agg
