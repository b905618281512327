// What a coordinator asks of another shard between two epochs, over a loopback
// server. The engine behind it only notes what arrives.
#include <atomic>
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
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/rpc/remote_shard_peer.h"
#include "server/shard/shard_engine.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

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
