// P24 between a coordinator and a shard whose connection a relay cuts.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"
#include "server/rpc/remote_shard_peer.h"
#include "server/rpc/shard_link.h"
#include "server/shard/published_version.h"
#include "tests/server/rpc/loopback_shard.h"
#include "tests/server/rpc/tcp_relay.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kLife = 0xabc;

// A shard of a job with the two tensors x (4 elements), which is its own, and
// y, which is not. The shard's clock and the coordinator's stand still.
class BrokenConnectionTest : public ::testing::Test {
 protected:
  BrokenConnectionTest() {
    shard_.Serve(nullptr, &shard_clock_);
    relay_ = std::make_unique<TcpRelay>(shard_.address());
    RemoteShardOptions options;
    options.address = relay_->address();
    options.fingerprint = kFingerprint;
    options.coordinator_life = kLife;
    options.coordinator = "here:0";
    options.clock = &clock_;
    peer_ = std::make_unique<RemoteShardPeer>(options);
  }

  void Begin() {
    ASSERT_EQ(peer_
                  ->Attach(kEpoch,
                           [this](const absl::Status& reason) {
                             lost_.set_value(reason);
                           })
                  .status(),
              absl::OkStatus());
    Manifest manifest = OneTensor(4);
    manifest.tensors.push_back({"y", {5}, "", false});
    ASSERT_EQ(peer_->SetManifest(kEpoch, manifest), absl::OkStatus());
    ASSERT_EQ(peer_->SetSession(kEpoch, Worker()), absl::OkStatus());
  }

  static SessionChange Worker() {
    SessionChange change;
    change.session = kSession;
    change.seed_role = true;
    return change;
  }

  static Phase MakePhase(PhaseKind kind) {
    Phase phase;
    phase.kind = kind;
    phase.epoch = kEpoch;
    if (kind == PhaseKind::kClose) phase.rows = {{0, kSession}};
    if (kind == PhaseKind::kCompensatedGram) phase.tensors = {0};
    phase.step.coefficients = {1.0};
    phase.step.learning_rate = 0.5;
    phase.step.step = 1;
    phase.publish.version = 1;
    return phase;
  }
  static Phase SeedPhase() {
    Phase phase = MakePhase(PhaseKind::kPublish);
    phase.publish.version = 0;
    phase.publish.seed = true;
    phase.publish.seed_session = kSession;
    return phase;
  }

  void Push(const std::vector<float>& values, v1::PushKind kind) {
    const auto [acks, status] =
        PushOne(shard_.NewChannel(), FrameOf(values, kind, 0));
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(acks.size(), 1u);
  }

  // The shard runs the phase, its answer is lost, and the peer asks again.
  absl::StatusOr<PhaseResult> RunAndLoseAnswer(const Phase& phase) {
    relay_->Mute();
    auto result =
        std::async(std::launch::async, [&] { return peer_->RunPhase(phase); });
    relay_->AwaitMuted();
    const auto first = shard_.engine()->RunPhase(phase);
    EXPECT_TRUE(first.ok()) << first.status();
    relay_->Cut();
    return result.get();
  }

  std::vector<float> Pull(uint64_t version) {
    v1::PullRequest request;
    request.set_epoch(kEpoch);
    request.set_version(version);
    request.set_dtype(v1::F32);
    const auto [frames, status] = PullAll(shard_.NewChannel(), request);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (frames.size() != 1) return {};
    const std::string& payload = frames[0].payload();
    const auto* first = reinterpret_cast<const float*>(payload.data());
    return std::vector<float>(first, first + payload.size() / sizeof(float));
  }

  bool lost() {
    return lost_future_.wait_for(std::chrono::seconds(0)) ==
           std::future_status::ready;
  }

  FakeClock clock_;
  FakeClock shard_clock_;
  LoopbackShard shard_{1, 2};
  std::promise<absl::Status> lost_;
  std::future<absl::Status> lost_future_ = lost_.get_future();
  std::unique_ptr<TcpRelay> relay_;
  std::unique_ptr<RemoteShardPeer> peer_;
};

TEST_F(BrokenConnectionTest, ARoundGoesOnThroughLostAnswers) {
  Begin();
  Push({1, 2, 3, 4}, v1::SEED);
  ASSERT_TRUE(RunAndLoseAnswer(SeedPhase()).ok());
  EXPECT_THAT(Pull(0), ElementsAre(1, 2, 3, 4));
  Push({8, 8, 8, 16}, v1::GRADIENT);
  absl::StatusOr<PhaseResult> result =
      RunAndLoseAnswer(MakePhase(PhaseKind::kClose));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->grams.size(), 1u);
  EXPECT_THAT(result->grams[0].hi, ElementsAre(3 * 64 + 256));
  ASSERT_TRUE(RunAndLoseAnswer(MakePhase(PhaseKind::kAbandon)).ok());
  ASSERT_TRUE(RunAndLoseAnswer(MakePhase(PhaseKind::kClose)).ok());
  result = RunAndLoseAnswer(MakePhase(PhaseKind::kCompensatedGram));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->grams.size(), 1u);
  ASSERT_TRUE(RunAndLoseAnswer(MakePhase(PhaseKind::kNorms)).ok());
  result = RunAndLoseAnswer(MakePhase(PhaseKind::kUpdate));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(RunAndLoseAnswer(MakePhase(PhaseKind::kPublish)).ok());
  // One step, not two.
  EXPECT_THAT(Pull(1), ElementsAre(-3, -2, -1, -4));
  EXPECT_FALSE(lost());
  EXPECT_EQ(shard_.engine()->Status().epoch, kEpoch);
}

// The offer comes with the report of the last row. The connection breaks behind
// it: the shard still has it, and takes it once.
TEST_F(BrokenConnectionTest, AnOfferIsTakenThroughLostAnswers) {
  std::promise<std::shared_ptr<const CloseOffer>> offered;
  std::promise<size_t> reported;
  peer_->SetOnOffer(
      [&](uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
        EXPECT_EQ(epoch, kEpoch);
        offered.set_value(std::move(offer));
      });
  bool first_report = true;
  peer_->SetOnComplete([&](uint64_t, const std::vector<CompleteRow>& rows) {
    if (std::exchange(first_report, false)) reported.set_value(rows.size());
  });
  Begin();
  Push({1, 2, 3, 4}, v1::SEED);
  ASSERT_TRUE(peer_->RunPhase(SeedPhase()).ok());
  v1::PushFrame frame = FrameOf({8, 8, 8, 16}, v1::GRADIENT, 0);
  frame.mutable_meta()->set_report(true);
  ASSERT_TRUE(PushOne(shard_.NewChannel(), frame).second.ok());
  EXPECT_EQ(reported.get_future().get(), 1u);
  const auto offer = offered.get_future().get();
  Phase update = MakePhase(PhaseKind::kUpdate);
  update.publishes = true;
  update.rows = {{0, kSession}};
  ASSERT_EQ(offer->rows, update.rows);
  ASSERT_EQ(offer->result.grams.size(), 1u);
  EXPECT_THAT(offer->result.grams[0].hi, ElementsAre(3 * 64 + 256));
  EXPECT_EQ(offer->result.row_crc32c.size(), 1u);
  relay_->Cut();
  const absl::StatusOr<PhaseResult> result = RunAndLoseAnswer(update);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Pull(1), ElementsAre(-3, -2, -1, -4));
  EXPECT_FALSE(lost());
}

TEST_F(BrokenConnectionTest, TheOtherCallsAreRepeatedToo) {
  Begin();
  for (int i = 0; i < 5; ++i) {
    relay_->Cut();
    EXPECT_EQ(peer_->SetSession(kEpoch, Worker()), absl::OkStatus());
    relay_->Cut();
    EXPECT_EQ(peer_->ReserveRow(kEpoch, 1, 0), absl::OkStatus());
    relay_->Cut();
    EXPECT_EQ(peer_->ForgetManifest(kEpoch), absl::OkStatus());
  }
  EXPECT_FALSE(lost());
}

// UNAVAILABLE that the shard says itself is its answer.
TEST_F(BrokenConnectionTest, AnErrorOfTheShardIsNotRepeated) {
  Begin();
  shard_.engine()->Lose(kEpoch, absl::UnavailableError("the device burns"));
  const absl::Status status = peer_->SetSession(kEpoch, Worker());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("the device burns"));
}

TEST_F(BrokenConnectionTest, NobodyForFiveSecondsIsALoss) {
  Begin();
  relay_->Close();
  auto call = std::async(std::launch::async,
                         [&] { return peer_->SetSession(kEpoch, Worker()); });
  EXPECT_FALSE(lost());
  // The clock begins to count when the peer sees the break.
  while (lost_future_.wait_for(std::chrono::milliseconds(10)) !=
         std::future_status::ready) {
    clock_.Advance(kResumeTime / 2);
  }
  const absl::Status reason = lost_future_.get();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(reason.message(), HasSubstr(" is lost: "));
  EXPECT_EQ(call.get(), reason);
}

// No clock moves here.
TEST_F(BrokenConnectionTest, AnotherLifeOfTheShardIsALossAtOnce) {
  Begin();
  LoopbackShard restarted{1, 2};
  restarted.Serve();
  relay_->Redirect(restarted.address());
  relay_->Cut();
  EXPECT_EQ(lost_future_.get().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(restarted.engine()->Status().attached);
}

TEST_F(BrokenConnectionTest, AnEpochThatIsOverThereIsALossAtOnce) {
  Begin();
  shard_.engine()->Lose(kEpoch, absl::UnavailableError("it is over"));
  relay_->Cut();
  EXPECT_EQ(lost_future_.get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(BrokenConnectionTest, AnEndThatTheShardSendsIsALossAtOnce) {
  Begin();
  shard_.rpc()->EndStreams(absl::UnavailableError("it is shutting down"));
  EXPECT_THAT(lost_future_.get().message(), HasSubstr("it is shutting down"));
}

TEST_F(BrokenConnectionTest, AShardWithoutItsCoordinatorServesForFiveSeconds) {
  Begin();
  Push({1, 2, 3, 4}, v1::SEED);
  ASSERT_TRUE(peer_->RunPhase(SeedPhase()).ok());
  std::promise<absl::Status> ended;
  std::future<absl::Status> end = ended.get_future();
  shard_.engine()->Pull(kEpoch, 1, false,
                        [&](const absl::StatusOr<PublishedVersion>& version) {
                          ended.set_value(version.status());
                        });
  relay_->Close();
  shard_.rpc()->LookForCoordinator();
  Push({8, 8, 8, 8}, v1::GRADIENT);
  EXPECT_THAT(Pull(0), ElementsAre(1, 2, 3, 4));
  while (end.wait_for(std::chrono::milliseconds(10)) !=
         std::future_status::ready) {
    shard_clock_.Advance(kResumeTime / 2);
    shard_.rpc()->LookForCoordinator();
  }
  const absl::Status reason = end.get();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(reason.message(), HasSubstr("the coordinator is gone (seen by"));
}

}  // namespace
}  // namespace agg
