#include "server/coordinator/peer_group.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NamedPeer : public ShardPeer {
 public:
  explicit NamedPeer(std::string name) : name_(std::move(name)) {}
  absl::StatusOr<ShardInventory> Attach(
      uint64_t, std::function<void(absl::Status)>) override {
    return ShardInventory();
  }
  void Lose(uint64_t, const absl::Status&) override {}
  absl::StatusOr<PhaseResult> RunPhase(const Phase&) override {
    return PhaseResult();
  }
  std::string name() const override { return name_; }

 private:
  const std::string name_;
};

TEST(PeerGroupTest, CallsEveryPeerEveryTime) {
  NamedPeer a("a"), b("b"), c("c");
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
  NamedPeer a("a"), b("b"), c("c");
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
  NamedPeer a("a"), b("b");
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
  NamedPeer a("a"), b("shard 1 (here)"), c("c");
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
  NamedPeer a("a"), b("b");
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
  std::vector<std::unique_ptr<NamedPeer>> peers;
  std::vector<ShardPeer*> pointers;
  for (int i = 0; i < 30; ++i) {
    peers.push_back(std::make_unique<NamedPeer>("shard " + std::to_string(i)));
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

}  // namespace
}  // namespace agg
