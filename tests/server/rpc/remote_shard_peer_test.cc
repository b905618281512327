#include "server/rpc/remote_shard_peer.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.pb.h"
#include "server/access/caller_gate.h"
#include "server/access/identities.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "server/shard/shard_engine.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

class RemoteShardPeerTest : public ::testing::Test {
 protected:
  RemoteShardPeerTest() { shard_.Serve(); }

  std::unique_ptr<RemoteShardPeer> NewPeer(
      const std::string& fingerprint = kFingerprint, int ordinal = 1,
      int num_shards = 2, uint64_t life = 0xabc) {
    RemoteShardOptions options;
    options.coordinator_life = life;
    options.coordinator = absl::StrCat("coordinator of ", life);
    options.ordinal = ordinal;
    options.num_shards = num_shards;
    options.address = shard_.address();
    options.fingerprint = fingerprint;
    options.clock = &clock_;
    return std::make_unique<RemoteShardPeer>(options);
  }

  static SessionChange Worker() {
    SessionChange change;
    change.session = kSession;
    change.seed_role = true;
    return change;
  }

  FakeClock clock_;
  LoopbackShard shard_{1, 2};
};

TEST_F(RemoteShardPeerTest, CallsReachTheEngine) {
  auto peer = NewPeer();
  EXPECT_THAT(peer->name(), HasSubstr("shard 1 (127.0.0.1:"));
  EXPECT_EQ(peer->SetManifest(kEpoch, OneTensor(4)).code(),
            absl::StatusCode::kUnavailable);  // not attached yet
  ASSERT_TRUE(peer->Attach(kEpoch, [](const absl::Status&) {}).ok());
  EXPECT_EQ(shard_.engine()->Status().epoch, kEpoch);
  Manifest two = OneTensor(4);
  two.tensors.push_back({"second", {3}, "", false});
  ASSERT_TRUE(peer->SetManifest(kEpoch, two).ok());
  EXPECT_GT(shard_.engine()->Status().num_elements, 0);
  ASSERT_TRUE(peer->ForgetManifest(kEpoch).ok());
  EXPECT_EQ(shard_.engine()->Status().num_elements, 0);
  ASSERT_TRUE(peer->SetManifest(kEpoch, OneTensor(4)).ok());
  const int64_t planned = shard_.engine()->Status().memory_planned_bytes;
  ASSERT_TRUE(peer->ReserveRow(kEpoch, 0, 0).ok());
  EXPECT_GT(shard_.engine()->Status().memory_planned_bytes, planned);
  ASSERT_TRUE(peer->SetSession(kEpoch, Worker()).ok());
  Phase seed;
  seed.kind = PhaseKind::kPublish;
  seed.epoch = kEpoch;
  seed.publish.seed = true;
  seed.publish.seed_session = kSession;
  const absl::StatusOr<PhaseResult> result = peer->RunPhase(seed);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(shard_.engine()->Status().published);
  Phase close;
  close.epoch = kEpoch;
  close.rows = {{0, kSession}, {1, 99}};  // rank 1 has not joined
  const absl::StatusOr<PhaseResult> refusal = peer->RunPhase(close);
  ASSERT_TRUE(refusal.ok()) << refusal.status();
  EXPECT_THAT(refusal->incomplete_ranks, ::testing::ElementsAre(1));
}

TEST_F(RemoteShardPeerTest, ErrorsKeepTheirCodeAndGetAName) {
  auto peer = NewPeer();
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  const absl::Status status = peer->SetManifest(kEpoch - 1, OneTensor(4));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 (127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("current epoch 7"));
  Phase phase;
  phase.epoch = kEpoch;
  EXPECT_FALSE(peer->RunPhase(phase).ok());
}

// Its coefficients alone are twice what a message may have.
TEST_F(RemoteShardPeerTest, AStepLargerThanAMessageReachesTheEngine) {
  auto peer = NewPeer();
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  ASSERT_TRUE(peer->SetManifest(kEpoch, OneTensor(4)).ok());
  Phase update;
  update.kind = PhaseKind::kUpdate;
  update.epoch = kEpoch;
  update.step.coefficients.assign(2 << 20, 0.5);
  const absl::Status status = peer->RunPhase(update).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the open round is"));
}

TEST_F(RemoteShardPeerTest, ALongReasonIsRefused) {
  auto peer = NewPeer();
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  SessionChange change;
  change.session = 1;
  change.reason = std::string(8193, 'x');
  const absl::Status status = peer->SetSession(kEpoch, change);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("reason is 8193 bytes; allowed: at most 8192 bytes"));
}

TEST_F(RemoteShardPeerTest, ADifferentShardIsRefusedWithBothValues) {
  const auto refusal = [&](std::unique_ptr<RemoteShardPeer> peer) {
    const absl::Status status = peer->Attach(kEpoch, nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  const std::string config = refusal(NewPeer("ffff"));
  EXPECT_THAT(config, HasSubstr("ffff"));
  EXPECT_THAT(config, HasSubstr(kFingerprint));
  const std::string ordinal = refusal(NewPeer(kFingerprint, 0));
  EXPECT_THAT(ordinal, HasSubstr("ordinal 1, the coordinator expects 0"));
  const std::string shards = refusal(NewPeer(kFingerprint, 1, 3));
  EXPECT_THAT(shards, HasSubstr("num_shards 2, the coordinator expects 3"));
  EXPECT_FALSE(shard_.engine()->Status().attached);
}

TEST_F(RemoteShardPeerTest, NobodyThere) {
  auto peer = NewPeer();
  shard_.Stop();
  const absl::Status status = peer->Attach(kEpoch, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 (127.0.0.1:"));
}

TEST_F(RemoteShardPeerTest, LossIsReportedOnceWithNameAndReason) {
  auto peer = NewPeer();
  std::promise<absl::Status> lost;
  ASSERT_TRUE(
      peer->Attach(kEpoch, [&](const absl::Status& s) { lost.set_value(s); })
          .ok());
  shard_.rpc()->EndStreams(absl::UnavailableError("it is shutting down"));
  const absl::Status reason = lost.get_future().get();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(reason.message()),
              HasSubstr("is lost: it is shutting down"));
  EXPECT_THAT(std::string(reason.message()), HasSubstr("shard 1 (127.0.0.1:"));
  EXPECT_EQ(peer->SetManifest(kEpoch, OneTensor(4)), reason);
  // What a status says about itself is not what it is.
  EXPECT_FALSE(IsOrderlyStop(reason));
}

// A shard that hangs in a phase and answers pings.
TEST_F(RemoteShardPeerTest, APhaseThatIsGivenUpEndsWithTheReason) {
  auto peer = NewPeer();
  ASSERT_TRUE(
      peer->Attach(kEpoch,
                   [](const absl::Status& status) { ADD_FAILURE() << status; })
          .ok());
  ASSERT_TRUE(peer->SetManifest(kEpoch, OneTensor(4)).ok());
  ASSERT_TRUE(peer->SetSession(kEpoch, Worker()).ok());
  // It has no slice, so that its seed is complete. Answering this pull is part
  // of the phase.
  std::promise<void> in_phase;
  std::promise<void> released;
  shard_.engine()->Pull(kEpoch, 0, false,
                        [&](const absl::StatusOr<PublishedVersion>&) {
                          in_phase.set_value();
                          released.get_future().wait();
                        });
  Phase seed;
  seed.kind = PhaseKind::kPublish;
  seed.epoch = kEpoch;
  seed.publish.seed = true;
  seed.publish.seed_session = kSession;
  std::future<absl::StatusOr<PhaseResult>> result =
      std::async(std::launch::async, [&] { return peer->RunPhase(seed); });
  in_phase.get_future().wait();
  const absl::Status reason = absl::UnavailableError("it hangs");
  peer->GiveUp(kEpoch - 1, absl::InternalError("of another epoch"));
  peer->GiveUp(kEpoch, reason);
  EXPECT_EQ(result.get().status(), reason);
  EXPECT_EQ(peer->SetManifest(kEpoch, OneTensor(4)), reason);
  released.set_value();
}

TEST_F(RemoteShardPeerTest, AStopInGoodOrderIsNotCalledALoss) {
  auto peer = NewPeer();
  std::promise<absl::Status> lost;
  ASSERT_TRUE(
      peer->Attach(kEpoch, [&](const absl::Status& s) { lost.set_value(s); })
          .ok());
  const absl::Status stop = OrderlyStop(peer->name() + " is shutting down");
  shard_.rpc()->EndStreams(stop);
  const absl::Status reason = lost.get_future().get();
  EXPECT_EQ(reason, stop);
  EXPECT_TRUE(IsOrderlyStop(reason));
}

// Waits until the shard's engine has been told that its epoch is over.
absl::Status WaitUntilLost(ShardEngine* engine, uint64_t epoch = kEpoch) {
  std::promise<absl::Status> ended;
  engine->Pull(epoch, 0, false, [&](absl::StatusOr<PublishedVersion> v) {
    ended.set_value(v.status());
  });
  return ended.get_future().get();
}

TEST_F(RemoteShardPeerTest, AShardThatIsStoppedServesUntilItIsLetGo) {
  auto peer = NewPeer();
  std::promise<uint64_t> draining;
  std::promise<uint64_t> again;
  peer->SetOnDraining([&](uint64_t epoch) {
    (epoch == kEpoch ? draining : again).set_value(epoch);
  });
  ASSERT_TRUE(
      peer->Attach(kEpoch,
                   [](const absl::Status& status) { ADD_FAILURE() << status; })
          .ok());
  shard_.rpc()->AnnounceDraining();
  EXPECT_EQ(draining.get_future().get(), kEpoch);
  EXPECT_TRUE(peer->SetManifest(kEpoch, OneTensor(4)).ok());
  EXPECT_TRUE(shard_.engine()->Status().attached);
  // A coordinator that has not heard it hears it when it attaches the shard.
  ASSERT_TRUE(peer->Attach(kEpoch + 1, nullptr).ok());
  EXPECT_EQ(again.get_future().get(), kEpoch + 1);
  peer->Lose(kEpoch + 1, absl::UnavailableError("it is let go"));
  EXPECT_THAT(std::string(WaitUntilLost(shard_.engine(), kEpoch + 1).message()),
              HasSubstr("it is let go"));
  EXPECT_FALSE(shard_.engine()->Status().attached);
}

TEST_F(RemoteShardPeerTest, AServerThatDiesIsLost) {
  auto peer = NewPeer();
  std::promise<absl::Status> lost;
  ASSERT_TRUE(
      peer->Attach(kEpoch, [&](const absl::Status& s) { lost.set_value(s); })
          .ok());
  shard_.Stop();
  std::future<absl::Status> reason = lost.get_future();
  // It is waited for as long as it may only be the connection (P24).
  while (reason.wait_for(std::chrono::milliseconds(10)) !=
         std::future_status::ready) {
    clock_.Advance(absl::Seconds(5));
  }
  EXPECT_EQ(reason.get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RemoteShardPeerTest, TheCoordinatorsEndIsTheEpochsEnd) {
  auto peer = NewPeer();
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  peer = nullptr;
  const absl::Status status = WaitUntilLost(shard_.engine());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the coordinator is gone"));
}

TEST_F(RemoteShardPeerTest, LoseTellsTheOtherShardsWhy) {
  auto peer = NewPeer();
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  peer->Lose(kEpoch - 1, absl::UnavailableError("of another epoch"));
  peer->Lose(kEpoch, absl::UnavailableError("shard 2 (h:1) is lost"));
  const absl::Status status = WaitUntilLost(shard_.engine());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "shard 2 (h:1) is lost");
}

// The end of the old stream must not end the new epoch.
TEST_F(RemoteShardPeerTest, ANewEpochReplacesTheOldOne) {
  auto peer = NewPeer();
  int losses = 0;
  for (uint64_t epoch = kEpoch; epoch < kEpoch + 20; ++epoch) {
    ASSERT_TRUE(
        peer->Attach(epoch, [&](const absl::Status&) { ++losses; }).ok());
    ASSERT_TRUE(peer->SetManifest(epoch, OneTensor(4)).ok());
    ASSERT_TRUE(peer->SetSession(epoch, Worker()).ok());
  }
  EXPECT_EQ(losses, 0);
  const absl::Status stale = peer->Attach(kEpoch, nullptr).status();
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted);
}

TEST_F(RemoteShardPeerTest, AnotherLifeIsRefusedUntilTheFirstOneLetsGo) {
  auto first = NewPeer(kFingerprint, 1, 2, 0xabc);
  auto second = NewPeer(kFingerprint, 1, 2, 0xdef);
  ASSERT_TRUE(first->Attach(kEpoch, nullptr).ok());
  ASSERT_TRUE(first->SetManifest(kEpoch, OneTensor(4)).ok());
  const absl::Status refusal = second->Attach(kEpoch + 1, nullptr).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal));
  EXPECT_THAT(refusal.message(), HasSubstr("held by another coordinator"));
  EXPECT_THAT(refusal.message(), HasSubstr("coordinator of 2748"));
  // The first one's epoch goes on, and so does a new one.
  EXPECT_TRUE(first->SetSession(kEpoch, Worker()).ok());
  EXPECT_EQ(shard_.engine()->Status().epoch, kEpoch);
  ASSERT_TRUE(first->Attach(kEpoch + 2, nullptr).ok());
  first->LetGo();
  WaitUntilLost(shard_.engine(), kEpoch + 2).IgnoreError();
  // Its claim ends in the same step, on the thread that answers this.
  EXPECT_TRUE(second->Attach(kEpoch + 3, nullptr).ok());
}

TEST_F(RemoteShardPeerTest, NobodyAttachesTheCoordinatorsOwnShard) {
  LoopbackShard own{0, 2};
  own.Serve();
  RemoteShardOptions options;
  options.ordinal = 0;
  options.address = own.address();
  options.fingerprint = kFingerprint;
  options.coordinator_life = 0xabc;
  RemoteShardPeer peer(options);
  const absl::Status refusal = peer.Attach(kEpoch, nullptr).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal));
  EXPECT_THAT(refusal.message(), HasSubstr("its own process"));
}

TEST_F(RemoteShardPeerTest, CloseEndsEverything) {
  auto peer = NewPeer();
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  peer->Close(absl::UnavailableError("draining"));
  EXPECT_EQ(peer->SetManifest(kEpoch, OneTensor(4)).message(), "draining");
  EXPECT_EQ(peer->Attach(kEpoch + 1, nullptr).status().message(), "draining");
}

// A frame with `report` is not acknowledged: the coordinator hears of its row.
TEST_F(RemoteShardPeerTest, RowsThatAreCompleteAreReported) {
  auto peer = NewPeer();
  Mutex mutex;
  CondVar changed;
  std::vector<CompleteRow> heard;
  peer->SetOnComplete(
      [&](uint64_t epoch, const std::vector<CompleteRow>& rows) {
        EXPECT_EQ(epoch, kEpoch);
        MutexLock lock(&mutex);
        heard.insert(heard.end(), rows.begin(), rows.end());
        changed.NotifyAll();
      });
  ASSERT_TRUE(peer->Attach(kEpoch, nullptr).ok());
  Manifest manifest = OneTensor(4);  // shard 0's
  manifest.tensors.push_back({"second", {3}, "", false});
  ASSERT_TRUE(peer->SetManifest(kEpoch, manifest).ok());
  ASSERT_TRUE(peer->SetSession(kEpoch, Worker()).ok());
  v1::PushFrame frame = FrameOf({1, 2, 3}, v1::SEED, 0);
  frame.mutable_meta()->set_slices(0, 1);
  ASSERT_EQ(PushOne(shard_.NewChannel(), frame).first.size(), 1u);
  ASSERT_TRUE(shard_.PublishSeed().ok());
  frame.mutable_meta()->set_kind(v1::GRADIENT);
  frame.mutable_meta()->set_attempt(2);
  frame.mutable_meta()->set_report(true);
  const auto [acks, status] = PushOne(shard_.NewChannel(), frame);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(acks.empty());
  MutexLock lock(&mutex);
  while (heard.empty()) changed.Wait(&mutex);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].session, kSession);
  EXPECT_EQ(heard[0].round, 0u);
  EXPECT_EQ(heard[0].attempt, 2u);
}

// What becomes of a shard's word that it does not know this coordinator.

TEST(RefusedCoordinatorTest, IsNoAnswerToAWorker) {
  FakeClock clock;
  AccessOptions access;
  access.shard_token_file = "/s";
  access.identities = {{"seer", {}, "/o", {Role::kObserver}}};
  const auto identities = Identities::Make(
      access, &clock,
      [](const std::string& path) -> absl::StatusOr<std::string> {
        return path == "/s" ? "shard-token-01234" : "observer-token-01";
      });
  ASSERT_TRUE(identities.ok()) << identities.status();
  const CallerGate gate({identities->get(), nullptr, nullptr});
  LoopbackShard shard(1, 2);
  shard.set_gate(&gate);
  shard.Serve();
  RemoteShardOptions options;
  options.ordinal = 1;
  options.num_shards = 2;
  options.address = shard.address();
  options.fingerprint = kFingerprint;
  options.clock = &clock;
  for (const char* token : {"another-token-012", "observer-token-01"}) {
    options.token = [token] { return std::string(token); };
    RemoteShardPeer peer(options);
    for (const absl::Status& status :
         {peer.Promise().status(), peer.Attach(kEpoch, nullptr).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("shard 1 (", shard.address(),
                                         ") refuses this coordinator: ")));
    }
  }
}

// What a coordinator asks of another shard between two epochs, over a loopback
// server. The engine behind it only notes what arrives.

class NotingEngine : public ShardEngine {
 public:
  using ShardEngine::ShardEngine;

  absl::StatusOr<uint64_t> Promise() override { return promise; }
  absl::StatusOr<ShardInventory> Attach(
      uint64_t epoch, std::function<void(absl::Status)> on_lost) override {
    const absl::StatusOr<ShardInventory> own =
        ShardEngine::Attach(epoch, std::move(on_lost));
    if (!own.ok()) return own;
    return inventory;
  }
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override {
    if (IsOfJob(phase.kind)) return RunJobPhase(phase);
    if (phase.kind == slow_kind) {
      in_capture.set_value();
      release.get_future().wait();
    }
    MutexLock lock(&mutex);
    phases.push_back(phase);
    return result;
  }

  absl::StatusOr<PhaseResult> RunJobPhase(const Phase& phase) {
    PhaseResult answer;
    if (phase.kind == PhaseKind::kSetFacts) {
      facts_epoch = phase.epoch;
      facts = phase.facts;
      if (!facts_status.ok()) return facts_status;
    } else if (phase.kind == PhaseKind::kSetSession) {
      session = phase.session;
    } else {
      manifest_epoch = phase.epoch;
      if (!manifest.ok()) return manifest.status();
      answer.job_manifest = std::make_shared<const Manifest>(*manifest);
    }
    return answer;
  }

  uint64_t Progress() const override { return progress; }

  std::atomic<uint64_t> progress{0};
  // Set before, and looked at after, the calls of a test's only thread.
  uint64_t promise = 0;
  ShardInventory inventory;
  absl::StatusOr<Manifest> manifest = OneTensor(4);
  uint64_t manifest_epoch = 0;
  uint64_t facts_epoch = 0;
  JobFacts facts;
  absl::Status facts_status;
  SessionChange session;
  PhaseResult result;
  PhaseKind slow_kind = PhaseKind::kCapture;  // waits until release
  std::promise<void> in_capture;
  std::promise<void> release;
  Mutex mutex;
  std::vector<Phase> phases ABSL_GUARDED_BY(mutex);
};

class RemoteRecoveryTest : public ::testing::Test {
 protected:
  RemoteRecoveryTest()
      : shard_(1, 2, [this](const ShardOptions& options, Backend* backend) {
          auto engine = std::make_unique<NotingEngine>(options, backend);
          engine_ = engine.get();
          return engine;
        }) {
    shard_.set_on_shards([this](const std::vector<std::string>& shards) {
      MutexLock lock(&engine_->mutex);
      shards_ = shards;
    });
    shard_.Serve();
    peer_ = NewPeer(0xabc);
  }

  std::unique_ptr<RemoteShardPeer> NewPeer(
      uint64_t life, RemoteShardOptions options = RemoteShardOptions()) {
    options.ordinal = 1;
    options.num_shards = 2;
    options.coordinator_life = life;
    options.address = shard_.address();
    options.fingerprint = kFingerprint;
    options.clock = &clock_;
    return std::make_unique<RemoteShardPeer>(options);
  }

  FakeClock clock_;
  NotingEngine* engine_ = nullptr;
  std::vector<std::string> shards_;  // guarded by the engine's mutex
  LoopbackShard shard_;
  std::unique_ptr<RemoteShardPeer> peer_;
};

TEST_F(RemoteRecoveryTest, ThePromiseIsToldWithoutAnAttach) {
  engine_->promise = 41;
  const absl::StatusOr<uint64_t> promise = peer_->Promise();
  ASSERT_TRUE(promise.ok()) << promise.status();
  EXPECT_EQ(*promise, 41u);
  EXPECT_FALSE(engine_->Status().attached);
}

TEST_F(RemoteRecoveryTest, WhoCannotBeReachedHasNoPromise) {
  shard_.Stop();
  const absl::Status status = peer_->Promise().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 (127.0.0.1:"));
  peer_->Close(absl::UnavailableError("draining"));
  EXPECT_EQ(peer_->Promise().status().message(), "draining");
}

TEST_F(RemoteRecoveryTest, AttachBringsTheInventory) {
  engine_->inventory.member_epoch = 6;
  engine_->inventory.copies = {{1, {6, 12}, 6, true}};
  engine_->inventory.highest_session = 19;
  const absl::StatusOr<ShardInventory> inventory =
      peer_->Attach(kEpoch, nullptr);
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_NE(inventory->life, 0u);
  EXPECT_EQ(inventory->member_epoch, 6u);
  ASSERT_EQ(inventory->copies.size(), 1u);
  EXPECT_EQ(inventory->copies[0].id, (VersionId{6, 12}));
  EXPECT_EQ(inventory->highest_session, 19u);
}

// Each shard's own configuration may have other addresses, as where ports are
// known only when a process listens.
TEST_F(RemoteRecoveryTest, AttachSaysWhereTheShardsAre) {
  const std::vector<std::string> shards = {"10.0.0.1:50051", "agg-1:50051"};
  peer_->SetShards(shards);
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  MutexLock lock(&engine_->mutex);
  EXPECT_EQ(shards_, shards);
}

TEST_F(RemoteRecoveryTest, AddressesThatCannotBeAreRefusedByName) {
  const struct {
    std::vector<std::string> shards;
    std::string error;
  } cases[] = {{{"a:1"}, "shards has 1 addresses; allowed: none, or 2"},
               {{"a:1", "b"}, "shards[1] is \"b\"; allowed: host:port"}};
  for (const auto& bad : cases) {
    auto peer = NewPeer(0xabc);
    peer->SetShards(bad.shards);
    const absl::Status status = peer->Attach(kEpoch, nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.error));
  }
  MutexLock lock(&engine_->mutex);
  EXPECT_TRUE(shards_.empty());
}

TEST_F(RemoteRecoveryTest, AnInventoryThatCannotBeIsRefusedByName) {
  engine_->inventory.copies = {{2, {6, 12}, 6, true}};
  const absl::Status status = peer_->Attach(kEpoch, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 (127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("attach_reply.copies.part is 2"));
  engine_->inventory.copies.clear();
  EXPECT_TRUE(peer_->Attach(kEpoch + 1, nullptr).ok());
}

TEST_F(RemoteRecoveryTest, AnEpochIsPromisedToOneLife) {
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  peer_ = nullptr;  // lets go
  auto other = NewPeer(0xdef);
  absl::Status status;
  do {  // its claim ends on a thread of the shard's
    status = other->Attach(kEpoch, nullptr).status();
  } while (absl::IsFailedPrecondition(status));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("epoch 7 is promised to another coordinator"));
  EXPECT_TRUE(other->Attach(kEpoch + 1, nullptr).ok());
}

TEST_F(RemoteRecoveryTest, TheManifestIsGivenBack) {
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  const absl::StatusOr<Manifest> manifest = peer_->GetManifest(kEpoch);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(engine_->manifest_epoch, kEpoch);
  ASSERT_EQ(manifest->tensors.size(), 1u);
  EXPECT_EQ(manifest->tensors[0].name, "x");
  engine_->manifest->tensors[0].shape = {-1};
  EXPECT_EQ(peer_->GetManifest(kEpoch).status().code(),
            absl::StatusCode::kInvalidArgument);
  engine_->manifest = absl::FailedPreconditionError("there is none");
  const absl::Status none = peer_->GetManifest(kEpoch).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()), HasSubstr("there is none"));
}

TEST_F(RemoteRecoveryTest, FactsAndSessionsArrive) {
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  JobFacts facts;
  facts.epoch = 6;
  facts.number = 3;
  facts.text = "finished";
  ASSERT_EQ(peer_->SetFacts(kEpoch, facts), absl::OkStatus());
  EXPECT_EQ(engine_->facts_epoch, kEpoch);
  EXPECT_EQ(engine_->facts.epoch, 6u);
  EXPECT_EQ(engine_->facts.number, 3u);
  EXPECT_EQ(engine_->facts.text, "finished");
  engine_->facts_status = absl::AbortedError("stale epoch");
  EXPECT_EQ(peer_->SetFacts(kEpoch, facts).code(), absl::StatusCode::kAborted);
  facts.text = std::string((1 << 20) + 1, 'x');
  EXPECT_EQ(peer_->SetFacts(kEpoch, facts).code(),
            absl::StatusCode::kInvalidArgument);

  SessionChange change;
  change.session = kSession;
  change.first_round = 5;
  change.client = "host:1";
  ASSERT_EQ(peer_->SetSession(kEpoch, change), absl::OkStatus());
  EXPECT_EQ(engine_->session.first_round, 5u);
  EXPECT_EQ(engine_->session.client, "host:1");
  change.client = std::string(513, 'x');
  EXPECT_EQ(peer_->SetSession(kEpoch, change).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RemoteRecoveryTest, WorkOnFilesDoesNotWaitForAPhase) {
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  engine_->result.checkpoint.stage = CheckpointProgress::Stage::kWriting;
  Phase capture;
  capture.kind = PhaseKind::kCapture;
  capture.epoch = kEpoch;
  auto running =
      std::async(std::launch::async, [&] { return peer_->RunPhase(capture); });
  engine_->in_capture.get_future().wait();
  Phase progress;
  progress.kind = PhaseKind::kCheckpointProgress;
  progress.epoch = kEpoch;
  const absl::StatusOr<PhaseResult> answer = peer_->RunPhase(progress);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->checkpoint.stage, CheckpointProgress::Stage::kWriting);
  Phase seal;
  seal.kind = PhaseKind::kSeal;
  seal.epoch = kEpoch;
  seal.checkpoint = std::string(8 << 20, 'x');
  ASSERT_TRUE(peer_->RunPhase(seal).ok());
  engine_->release.set_value();
  EXPECT_TRUE(running.get().ok());
  MutexLock lock(&engine_->mutex);
  ASSERT_EQ(engine_->phases.size(), 3u);
  EXPECT_EQ(engine_->phases[1].kind, PhaseKind::kSeal);
  EXPECT_EQ(engine_->phases[1].checkpoint, seal.checkpoint);
  EXPECT_EQ(engine_->phases[2].kind, PhaseKind::kCapture);
}

// What of Grams is added up as it comes needs no bound; all else is kept.
TEST_F(RemoteRecoveryTest, AnAnswerThatIsTooLongIsNotKept) {
  RemoteShardOptions options;
  options.max_reply_bytes = 1000;
  peer_ = NewPeer(0xabc, options);
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  Phase phase;
  phase.kind = PhaseKind::kReadManifest;
  phase.epoch = kEpoch;
  engine_->result.manifest = std::string(900, 'x');
  absl::StatusOr<PhaseResult> answer = peer_->RunPhase(phase);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->manifest.size(), 900u);
  engine_->result.manifest += std::string(200, 'x');
  absl::Status status = peer_->RunPhase(phase).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its answer to phase read_manifest is too long; "
                        "allowed: 1000 bytes at most"));
  engine_->result.manifest.clear();
  engine_->result.grams.push_back({0, std::vector<double>(200), {}});
  status = peer_->RunPhase(phase).status();  // it has none
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  phase.kind = PhaseKind::kClose;
  answer = peer_->RunPhase(phase);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->grams.size(), 1u);
}

// However long it takes, the checkpoint fails and not the epoch.
TEST_F(RemoteRecoveryTest, ADiskThatHangsFailsTheCall) {
  RemoteShardOptions options;
  options.file_timeout = absl::Milliseconds(1);
  peer_ = NewPeer(0xabc, options);
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  engine_->slow_kind = PhaseKind::kSeal;
  Phase seal;
  seal.kind = PhaseKind::kSeal;
  seal.epoch = kEpoch;
  const absl::Status status = peer_->RunPhase(seal).status();
  engine_->release.set_value();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(" has not answered phase seal within 1ms"));
  EXPECT_EQ(peer_->SetFacts(kEpoch, JobFacts()), absl::OkStatus());
}

// A shard that takes long over many bytes says that it goes on (P31).
TEST_F(RemoteRecoveryTest, ProgressComesOnTheStream) {
  ASSERT_TRUE(peer_->Attach(kEpoch, nullptr).ok());
  EXPECT_EQ(peer_->Progress(), 0u);
  for (const uint64_t progress : {1, 5, 700}) {
    engine_->progress = progress;
    shard_.rpc()->LookForCoordinator();
    while (peer_->Progress() != progress) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace agg
