#include "server/rpc/remote_shard_peer.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.pb.h"
#include "server/access/caller_gate.h"
#include "server/access/identities.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

class RemoteShardPeerTest : public ::testing::Test {
 protected:
  RemoteShardPeerTest() { shard_.Serve(); }

  std::unique_ptr<RemoteShardPeer> NewPeer(
      const std::string& fingerprint = kFingerprint, int ordinal = 1,
      int num_shards = 2, uint64_t life = 0) {
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

}  // namespace
}  // namespace agg
