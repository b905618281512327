// The versions that a Push stream brings (P41, P43), with an engine and without
// a stream.
#include "server/rpc/stream_pulls.h"

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.pb.h"
#include "proto/crc32c.h"
#include "proto/wave_plan.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two waves, each a frame.
Manifest TwoWaves() {
  return {{{"a", {kMinWaveElements}, "", false},
           {"b", {kMinWaveElements}, "", false}}};
}

std::unique_ptr<ShardEngine> Pipelined(const ShardOptions& options,
                                       Backend* backend) {
  ShardOptions pipelined = options;
  pipelined.pipelined = true;
  return std::make_unique<ShardEngine>(pipelined, backend);
}

class StreamPullsTest : public testing::Test {
 protected:
  StreamPullsTest() : shard_(0, 1, Pipelined) {
    shard_.Begin(TwoWaves());
    Push(PushKind::kSeed);
    EXPECT_TRUE(shard_.PublishSeed().ok());
    MakePulls();
  }

  void MakePulls() {
    StreamPulls::Stream stream;
    stream.wake = [this] { ++wakes_; };
    stream.end = [this](const absl::Status& reason) { end_ = reason; };
    pulls_ = std::make_shared<StreamPulls>(shard_.engine(), &cache_, stream);
  }
  // All of a row of zeros.
  void Push(PushKind kind) {
    const std::vector<float> zeros(kMinWaveElements);
    const absl::string_view bytes(reinterpret_cast<const char*>(zeros.data()),
                                  zeros.size() * sizeof(float));
    FrameHeader header;
    header.epoch = kEpoch;
    header.session = kSession;
    header.kind = kind;
    header.crc32c = {Crc32c(bytes)};
    header.payload_bytes = static_cast<int64_t>(bytes.size());
    for (const uint32_t slice : {0, 1}) {
      header.slices = {slice};
      auto landing = shard_.engine()->BeginFrame(header);
      ASSERT_TRUE(landing.ok()) << landing.status();
      bytes.copy(landing->slices[0].destination, bytes.size());
      landing->slices[0].landed = true;
      const auto result = shard_.engine()->EndFrame(*landing);
      ASSERT_TRUE(result.ok()) << result.status();
    }
  }
  void Run(PhaseKind kind, int wave) {
    Phase phase;
    phase.kind = kind;
    phase.epoch = kEpoch;
    phase.wave = wave;
    phase.rows = {{0, kSession, 0}};
    phase.step.per_tensor = true;
    phase.step.tensors = {wave - 1};
    phase.step.coefficients = {1.0};
    phase.step.learning_rate = 0.5;
    phase.publish.version = 1;
    const auto result = shard_.engine()->RunPhase(phase);
    ASSERT_TRUE(result.ok()) << PhaseName(kind) << result.status();
  }
  // Of round 0.
  void RunWave(int wave) {
    Run(PhaseKind::kClose, wave);
    Run(PhaseKind::kUpdate, wave);
  }
  void Publish() { Run(PhaseKind::kPublish, 0); }

  absl::Status Ask(uint64_t version, DType dtype = DType::kF32,
                   uint64_t epoch = kEpoch) {
    PullQuery query;
    query.epoch = epoch;
    query.version = version;
    query.dtype = dtype;
    return pulls_->Ask(query);
  }
  // The frames that are there, as "version.slice", with "!" for the last one.
  std::vector<std::string> Read() {
    std::vector<std::string> frames;
    while (const auto buffer = pulls_->Next()) {
      std::vector<grpc::Slice> slices;
      EXPECT_TRUE(buffer->Dump(&slices).ok());
      std::string bytes;
      for (const grpc::Slice& slice : slices) {
        bytes.append(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
      }
      v1::PushAck ack;
      EXPECT_TRUE(ack.ParseFromString(bytes));
      frames.push_back(std::to_string(ack.meta().round()) + "." +
                       std::to_string(ack.meta().slices(0)) +
                       (ack.last() ? "!" : ""));
      pulls_->Written();
    }
    return frames;
  }

  LoopbackShard shard_;
  PullFrameCache cache_;
  int wakes_ = 0;
  absl::Status end_;
  std::shared_ptr<StreamPulls> pulls_;
};

TEST_F(StreamPullsTest, AVersionThatIsThereComesAtOnce) {
  EXPECT_FALSE(pulls_->Next().has_value());
  ASSERT_TRUE(Ask(0).ok());
  EXPECT_EQ(wakes_, 1);
  EXPECT_THAT(Read(), ElementsAre("0.0", "0.1!"));
  ASSERT_TRUE(Ask(0).ok());
  EXPECT_THAT(Read(), ElementsAre("0.0", "0.1!"));
  EXPECT_TRUE(end_.ok());
}

TEST_F(StreamPullsTest, TheNextVersionComesAsItsWavesDo) {
  ASSERT_TRUE(Ask(1).ok());
  Push(PushKind::kGradient);
  EXPECT_EQ(wakes_, 0);
  RunWave(1);
  EXPECT_GT(wakes_, 0);
  EXPECT_THAT(Read(), ElementsAre("1.0"));
  RunWave(2);
  EXPECT_THAT(Read(), ElementsAre());
  const int before = wakes_;
  Publish();
  EXPECT_GT(wakes_, before);
  EXPECT_THAT(Read(), ElementsAre("1.1!"));
}

TEST_F(StreamPullsTest, ARepeatJoinsThePullThatWaits) {
  ASSERT_TRUE(Ask(1).ok());
  EXPECT_TRUE(Ask(1).ok());
  const absl::Status other = Ask(1, DType::kBF16);
  EXPECT_TRUE(absl::IsFailedPrecondition(other));
  EXPECT_THAT(other.message(), HasSubstr("waits for version 1 in dtype 1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(0)));
  Push(PushKind::kGradient);
  RunWave(1);
  RunWave(2);
  Publish();
  EXPECT_THAT(Read(), ElementsAre("1.0", "1.1!"));  // once
}

TEST_F(StreamPullsTest, AStreamThatIsNotReadGetsNoThirdVersion) {
  ASSERT_TRUE(Ask(0).ok());
  ASSERT_TRUE(Ask(0).ok());
  const absl::Status third = Ask(0);
  EXPECT_TRUE(absl::IsResourceExhausted(third));
  EXPECT_THAT(third.message(), HasSubstr("2 versions are on this stream"));
  EXPECT_THAT(Read(), ElementsAre("0.0", "0.1!", "0.0", "0.1!"));
  EXPECT_TRUE(Ask(0).ok());
}

TEST_F(StreamPullsTest, WhatAPullWouldBeRefusedEndsTheStream) {
  EXPECT_TRUE(Ask(7).ok());
  EXPECT_TRUE(absl::IsOutOfRange(end_)) << end_;
  MakePulls();
  EXPECT_TRUE(Ask(0, DType::kF32, kEpoch - 1).ok());
  EXPECT_TRUE(absl::IsAborted(end_)) << end_;
  MakePulls();
  EXPECT_TRUE(Ask(0, DType::kF16).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(end_)) << end_;
  EXPECT_EQ(wakes_, 0);
}

TEST_F(StreamPullsTest, AVersionThatIsGivenUpOnItsWayEndsTheStream) {
  ASSERT_TRUE(Ask(1).ok());
  Push(PushKind::kGradient);
  RunWave(1);
  EXPECT_THAT(Read(), ElementsAre("1.0"));
  shard_.engine()->Lose(kEpoch, absl::UnavailableError("shard 1 is lost"));
  EXPECT_FALSE(end_.ok());
  EXPECT_THAT(Read(), ElementsAre());
}

TEST_F(StreamPullsTest, MemoryThatIsWantedBackEndsTheStream) {
  ASSERT_TRUE(Ask(0).ok());
  ASSERT_TRUE(pulls_->Next().has_value());
  Phase unseeded;
  unseeded.kind = PhaseKind::kRecover;
  unseeded.epoch = kEpoch + 1;
  unseeded.recover.unseeded = true;
  ASSERT_TRUE(shard_.engine()->Attach(kEpoch + 1, nullptr).ok());
  ASSERT_TRUE(shard_.engine()->RunPhase(unseeded).ok());
  EXPECT_TRUE(absl::IsAborted(end_)) << end_;
  EXPECT_THAT(end_.message(), HasSubstr("while version 0 was being pulled"));
}

TEST_F(StreamPullsTest, AStreamThatHasEndedIsNotWoken) {
  ASSERT_TRUE(Ask(1).ok());
  pulls_ = nullptr;
  Push(PushKind::kGradient);
  RunWave(1);
  RunWave(2);
  Publish();
  EXPECT_EQ(wakes_, 0);
  EXPECT_TRUE(end_.ok());
}

}  // namespace
}  // namespace agg
