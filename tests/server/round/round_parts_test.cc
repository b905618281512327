// The small parts of server/round.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/trust_ratio.h"
#include "server/round/session_table.h"
#include "server/shard/memory_plan.h"
#include "server/shard/pull_queue.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// --- SessionTable ------------------------------------------------------------

TEST(SessionTableTest, KnowsTheLivingAndTheEnded) {
  SessionTable table;
  EXPECT_FALSE(table.any_alive());
  EXPECT_EQ(table.Rank(7).status().code(), absl::StatusCode::kNotFound);
  table.Begin(7, 3);
  EXPECT_TRUE(table.any_alive());
  EXPECT_EQ(*table.Rank(7), 3);
  table.End(7, absl::AbortedError("superseded"));
  EXPECT_FALSE(table.any_alive());
  EXPECT_EQ(table.Rank(7).status(), absl::AbortedError("superseded"));
  table.Begin(7, 3);  // a repeated call does not revive it
  EXPECT_FALSE(table.Rank(7).ok());
  table.End(7, absl::NotFoundError("the first reason stays"));
  EXPECT_TRUE(absl::IsAborted(table.Rank(7).status()));
  table.Clear();
  EXPECT_TRUE(absl::IsNotFound(table.Rank(7).status()));
}

TEST(SessionTableTest, ForgetsTheOldestEnded) {
  SessionTable table;
  for (uint64_t session = 1; session <= 4097; ++session) {
    table.Begin(session, 0);
    table.End(session, absl::AbortedError("over"));
  }
  EXPECT_TRUE(absl::IsNotFound(table.Rank(1).status()));
  EXPECT_TRUE(absl::IsAborted(table.Rank(2).status()));
  EXPECT_FALSE(table.any_alive());
}

// --- PullQueue ---------------------------------------------------------------

TEST(PullQueueTest, AnswersThoseThatHaveAnAnswer) {
  PullQueue<int> queue;
  std::vector<std::string> heard;
  const auto listen = [&](const std::string& name) {
    return [&heard, name](absl::StatusOr<int> value) {
      heard.push_back(name + "=" + std::to_string(value.value_or(-1)));
    };
  };
  EXPECT_EQ(queue.Add({1, 5, false, listen("five")}), 1);
  EXPECT_EQ(queue.Add({1, 6, false, listen("six")}), 2);
  const int64_t seven = queue.Add({1, 7, false, listen("seven")});
  const auto answer = [](uint64_t published) {
    return [published](const PullQueue<int>::Request& request) {
      if (request.version > published) return PullQueue<int>::Answer();
      return PullQueue<int>::Answer(static_cast<int>(request.version));
    };
  };
  const auto none = queue.Resolve(answer(4));
  EXPECT_TRUE(none.empty());
  const auto two = queue.Resolve(answer(6));
  EXPECT_TRUE(heard.empty());  // the owner runs them
  for (const auto& closure : two) closure();
  EXPECT_THAT(heard, ElementsAre("five=5", "six=6"));
  queue.Remove(seven);
  EXPECT_TRUE(queue.Resolve(answer(9)).empty());
}

// --- MemoryPlan --------------------------------------------------------------

TEST(MemoryPlanTest, CountsWhatIsAllocated) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  const MemoryPlan plan =
      PlanMemory(1000, 3, DType::kBF16, DType::kBF16, adam, MemoryNeeds());
  EXPECT_EQ(plan.host.rows, 3 * 1000 * 2);
  EXPECT_EQ(plan.host.master, 4000);
  EXPECT_EQ(plan.host.state, 8000);
  EXPECT_EQ(plan.host.snapshots, 3 * 1000 * 6);
  EXPECT_EQ(plan.host.frames, 2 * 3 * (4 << 20));
  EXPECT_EQ(plan.host.total(), 6000 + 4000 + 8000 + 18000 + 6 * (4 << 20));
  EXPECT_EQ(plan.device.total(), 0);
  const MemoryPlan f32 = PlanMemory(1000, 0, DType::kF32, DType::kF32,
                                    OptimizerOptions(), MemoryNeeds());
  EXPECT_EQ(f32.host.total(), 4000 + 3 * 4000);
}

TEST(MemoryPlanTest, CountsADeviceApart) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  MemoryNeeds needs;
  needs.on_device = true;
  needs.scratch_bytes = 11;
  needs.device_scratch_bytes = 13;
  const MemoryPlan plan =
      PlanMemory(1000, 3, DType::kBF16, DType::kBF16, adam, needs);
  EXPECT_EQ(plan.host.total(), 6000 + 18000 + 6 * (4 << 20) + 11);
  EXPECT_EQ(plan.device.rows, 6000);
  EXPECT_EQ(plan.device.master, 4000);
  EXPECT_EQ(plan.device.state, 8000);
  EXPECT_EQ(plan.device.snapshots, 2000);  // what was narrowed last
  EXPECT_EQ(plan.device.total(), 6000 + 4000 + 8000 + 2000 + 13);
  EXPECT_EQ(CheckMemoryPlan(plan, {plan.host.total(), plan.device.total()}),
            absl::OkStatus());
  const absl::Status status =
      CheckMemoryPlan(plan, {plan.host.total(), plan.device.total() - 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("device_memory_budget_bytes is 20012"));
  EXPECT_THAT(status.message(), HasSubstr("; on the device rows 0.0 MiB + "));
}

TEST(MemoryPlanTest, RefusesWithTheNumbers) {
  const MemoryPlan plan = PlanMemory(1 << 20, 1, DType::kF32, DType::kF32,
                                     OptimizerOptions(), MemoryNeeds());
  EXPECT_EQ(CheckMemoryPlan(plan, {0, 0}), absl::OkStatus());
  EXPECT_EQ(CheckMemoryPlan(plan, {plan.host.total(), 0}), absl::OkStatus());
  const absl::Status status = CheckMemoryPlan(plan, {plan.host.total() - 1, 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("rows 4.0 MiB + master 4.0 MiB + snapshots 12.0 MiB + "
                        "frames 8.0 MiB = 28.0 MiB"));
  EXPECT_THAT(status.message(), HasSubstr("memory_budget_bytes is 29360127"));
}

// --- TrustRatio --------------------------------------------------------------

TEST(TrustRatioTest, IsThePapers) {
  OptimizerOptions lars;
  lars.kind = OptimizerKind::kLars;
  lars.trust_coefficient = 0.5f;
  lars.epsilon = 0.0f;
  EXPECT_FLOAT_EQ(TrustRatio(lars, 0.25, {16.0, 4.0}),
                  0.5 * 4.0 / (2.0 + 0.25 * 4.0));
  OptimizerOptions lamb;
  lamb.kind = OptimizerKind::kLamb;
  EXPECT_FLOAT_EQ(TrustRatio(lamb, 0.25, {16.0, 4.0}), 2.0);
  EXPECT_EQ(TrustRatio(OptimizerOptions(), 0.0, {16.0, 4.0}), 1.0f);
}

TEST(TrustRatioTest, IsOneWhereANormIsZeroOrNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (OptimizerKind kind : {OptimizerKind::kLars, OptimizerKind::kLamb}) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {0.0, 4.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {4.0, 0.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {nan, 1.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {1.0, nan}), 1.0f);
  }
}

// --- PeerGroup ---------------------------------------------------------------

class NamedPeer : public ShardPeer {
 public:
  explicit NamedPeer(std::string name) : name_(std::move(name)) {}
  absl::Status Attach(uint64_t, std::function<void(absl::Status)>) override {
    return absl::OkStatus();
  }
  void Lose(uint64_t, const absl::Status&) override {}
  absl::Status SetManifest(uint64_t, const Manifest&) override {
    return absl::OkStatus();
  }
  absl::Status ForgetManifest(uint64_t) override { return absl::OkStatus(); }
  absl::Status SetSession(uint64_t, const SessionChange&) override {
    return absl::OkStatus();
  }
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
