#include "server/coordinator/peer_group.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"
#include "tests/server/round/faulty_peer.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(PeerGroupTest, CallsEveryPeerEveryTime) {
  IdlePeer a("a"), b("b"), c("c");
  PeerGroup group({&a, &b, &c});
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<int> calls(3, 0);
    const absl::Status status = group.ForEach([&](int i, ShardPeer* peer) {
      calls[i] += peer == group.peer(i) ? 1 : 100;
      return absl::OkStatus();
    });
    ASSERT_EQ(status, absl::OkStatus());
    ASSERT_THAT(calls, ElementsAre(1, 1, 1));
  }
}

TEST(PeerGroupTest, LeavesOutWhoIsSkipped) {
  IdlePeer a("a"), b("b"), c("c");
  PeerGroup group({&a, &b, &c});
  std::vector<std::thread::id> threads(3);
  const auto call = [&](int i, ShardPeer*) -> absl::Status {
    threads[i] = std::this_thread::get_id();
    return absl::InternalError("torn");
  };
  EXPECT_EQ(group.ForEach(call, {false, true, true}).message(), "a: torn");
  // One alone costs no wake-up.
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_EQ(threads[1], std::thread::id());
  EXPECT_EQ(group.ForEach(call, {true, false, false}).message(),
            "b: torn; c: torn");
  EXPECT_EQ(group.ForEach(call, {true, true, true}), absl::OkStatus());
  PeerGroup in_order({&a, &b, &c}, [](int) {
    return std::vector<int>{2, 0, 1};
  });
  EXPECT_EQ(in_order.ForEach(call, {false, true, false}).message(),
            "a: torn; c: torn");
}

TEST(PeerGroupTest, RunsThemAtTheSameTime) {
  IdlePeer a("a"), b("b");
  PeerGroup group({&a, &b});
  Mutex mutex;
  CondVar changed;
  int arrived = 0;
  // Each waits for the other: ends only if both run.
  const absl::Status status = group.ForEach([&](int, ShardPeer*) {
    MutexLock lock(&mutex);
    ++arrived;
    changed.NotifyAll();
    while (arrived < 2) changed.Wait(&mutex);
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(PeerGroupTest, ReportsAllErrorsByOrdinalWithTheNames) {
  IdlePeer a("a"), b("shard 1 (here)"), c("c");
  PeerGroup group({&a, &b, &c});
  const auto fail = [](int i, ShardPeer*) -> absl::Status {
    if (i == 1) return absl::InternalError("broken");
    if (i == 2) return absl::DataLossError("torn");
    return absl::OkStatus();
  };
  EXPECT_EQ(group.ForEach(fail),
            absl::InternalError("shard 1 (here): broken; c: torn"));
  const auto lose = [](int i, ShardPeer*) -> absl::Status {
    return i == 2 ? absl::UnavailableError("gone")
                  : absl::InternalError("broken");
  };
  EXPECT_EQ(
      group.ForEach(lose),
      absl::UnavailableError("a: broken; shard 1 (here): broken; c: gone"));
  EXPECT_EQ(group.ForEach([](int, ShardPeer*) { return absl::OkStatus(); }),
            absl::OkStatus());
  EXPECT_EQ(group.ForEach([](int i, ShardPeer* peer) -> absl::Status {
    return i == 1 ? absl::UnavailableError(peer->name() + " is lost")
                  : absl::OkStatus();
  }),
            absl::UnavailableError("shard 1 (here) is lost"));
}

TEST(PeerGroupTest, AStopInGoodOrderStaysOneUnlessAnotherShardIsLost) {
  IdlePeer a("a"), b("b");
  PeerGroup group({&a, &b});
  const absl::Status stopped = group.ForEach([](int i, ShardPeer*) {
    return i == 1 ? OrderlyStop("b is shutting down")
                  : absl::InternalError("broken");
  });
  EXPECT_TRUE(absl::IsUnavailable(stopped));
  EXPECT_TRUE(IsOrderlyStop(stopped));
  const absl::Status lost = group.ForEach([](int i, ShardPeer*) {
    return i == 1 ? OrderlyStop("b is shutting down")
                  : absl::UnavailableError("is shutting down, it seems");
  });
  EXPECT_FALSE(IsOrderlyStop(lost));
}

TEST(PeerGroupTest, ManyLongErrorsMakeABoundedMessage) {
  std::vector<std::unique_ptr<IdlePeer>> peers;
  std::vector<ShardPeer*> pointers;
  for (int i = 0; i < 30; ++i) {
    peers.push_back(std::make_unique<IdlePeer>("shard " + std::to_string(i)));
    pointers.push_back(peers.back().get());
  }
  PeerGroup group(pointers);
  const absl::Status status =
      group.ForEach([](int i, ShardPeer*) -> absl::Status {
        if (i % 3 == 0) return absl::OkStatus();
        return absl::InternalError(std::string(5000, 'x'));
      });
  EXPECT_LT(status.message().size(), 4000u);
  EXPECT_THAT(status.message(), HasSubstr("; shard 11: xxx"));
  EXPECT_THAT(status.message(), testing::Not(HasSubstr("shard 13")));
  EXPECT_THAT(status.message(), HasSubstr("; 12 more shards"));
}

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

// Peers may report a loss at any time, also after the coordinator has gone.

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
