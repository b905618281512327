// Order, the bound, and a wait that an event ends.
#include "worker_client/c/event_queue.h"

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace agg {
namespace {

ClientEvent Event(uint64_t version) {
  return {ClientEvent::Kind::kWaiting, version, std::to_string(version)};
}

TEST(EventQueueTest, GivesEventsInTheirOrder) {
  EventQueue queue;
  queue.Add(Event(1));
  queue.Add(Event(2));
  EXPECT_EQ(queue.Take(absl::ZeroDuration())->event.message, "1");
  EXPECT_EQ(queue.Take(-absl::InfiniteDuration())->event.version, 2u);
  EXPECT_FALSE(queue.Take(absl::ZeroDuration()).has_value());
}

TEST(EventQueueTest, DropsTheOldestAndSaysHowMany) {
  EventQueue queue;
  for (size_t i = 0; i < EventQueue::kCapacity + 3; ++i) queue.Add(Event(i));
  const auto first = queue.Take(absl::ZeroDuration());
  EXPECT_EQ(first->event.version, 3u);
  EXPECT_EQ(first->num_dropped, 3u);
  EXPECT_EQ(queue.Take(absl::ZeroDuration())->num_dropped, 0u);
  size_t rest = 2;
  while (queue.Take(absl::ZeroDuration()).has_value()) ++rest;
  EXPECT_EQ(rest, EventQueue::kCapacity);
}

TEST(EventQueueTest, AnEventEndsAWaitWithoutALimit) {
  EventQueue queue;
  std::thread adder([&queue] { queue.Add(Event(7)); });
  EXPECT_EQ(queue.Take(absl::InfiniteDuration())->event.version, 7u);
  adder.join();
}

}  // namespace
}  // namespace agg
