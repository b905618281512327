// Peers may report a loss at any time, also after the coordinator has gone.
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/mutex.h"
#include "server/coordinator/peer_group.h"

namespace agg {
namespace {

using testing::ElementsAre;

TEST(ShardEventsTest, HandsOnUntilStopped) {
  std::vector<uint64_t> epochs;
  ShardEvents events([&](uint64_t epoch, const absl::Status& reason) {
    EXPECT_EQ(reason, absl::UnavailableError("gone"));
    epochs.push_back(epoch);
  });
  events.Notify(7, absl::UnavailableError("gone"));
  events.Stop();
  events.Notify(8, absl::UnavailableError("gone"));
  events.Stop();
  EXPECT_THAT(epochs, ElementsAre(7));
}

TEST(ShardEventsTest, HandsOnWhoIsStopped) {
  std::vector<int> shards;
  ShardEvents events(nullptr, [&](uint64_t epoch, int ordinal) {
    EXPECT_EQ(epoch, 7u);
    shards.push_back(ordinal);
  });
  events.NotifyDraining(7, 2);
  events.Stop();
  events.NotifyDraining(7, 3);
  EXPECT_THAT(shards, ElementsAre(2));
}

TEST(ShardEventsTest, StopWaitsForACallThatRuns) {
  Mutex mutex;
  CondVar changed;
  bool running = false;
  bool may_end = false;
  bool ended = false;
  ShardEvents events([&](uint64_t, const absl::Status&) {
    MutexLock lock(&mutex);
    running = true;
    changed.NotifyAll();
    while (!may_end) changed.Wait(&mutex);
    ended = true;
  });
  std::thread peer([&] { events.Notify(1, absl::AbortedError("lost")); });
  std::thread releaser([&] {
    MutexLock lock(&mutex);
    while (!running) changed.Wait(&mutex);
    may_end = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(&mutex);
    while (!running) changed.Wait(&mutex);
  }
  events.Stop();
  EXPECT_TRUE(ended);
  peer.join();
  releaser.join();
}

TEST(ShardEventsTest, ACallMayBringAboutAnother) {
  std::vector<uint64_t> epochs;
  ShardEvents* self = nullptr;
  ShardEvents events([&](uint64_t epoch, const absl::Status& reason) {
    epochs.push_back(epoch);
    if (epoch == 1) self->Notify(2, reason);
  });
  self = &events;
  events.Notify(1, absl::UnavailableError("gone"));
  EXPECT_THAT(epochs, ElementsAre(1, 2));
}

}  // namespace
}  // namespace agg
