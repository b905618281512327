// The versions that a Push stream brings (P41, P43), with an engine and without
// a stream.
#include "server/rpc/stream_pulls.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/buffer.h"
#include "kernels/dtype.h"
#include "kernels/narrow_float.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"
#include "proto/wave_plan.h"
#include "server/base/shared_memory.h"
#include "server/ingest/shard_layout.h"
#include "server/params/shared_buffer.h"
#include "server/params/snapshot.h"
#include "server/shard/published_version.h"
#include "tests/server/rpc/loopback_shard.h"
#include "tests/server/shard/deferring_backend.h"

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
  pipelined.early_gram = false;
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

// A version on its way to one reader: order, what may be sent, and what is
// wanted back.

class HostBuffer : public Buffer {
 public:
  explicit HostBuffer(size_t size) : bytes_(size) {}
  char* host() const override { return bytes_.data(); }
  int64_t num_bytes() const override {
    return static_cast<int64_t>(bytes_.size());
  }

 private:
  mutable std::vector<char> bytes_;
};

template <typename Message>
Message Parse(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

// A version of slices 0, 1 and 2, each in a frame of its own.
class VersionFlowTest : public testing::Test {
 protected:
  VersionFlowTest() {
    const Manifest manifest = {{{"a", {(2 << 20) + 5}, "", false}}};
    shard_.Begin(manifest);
    version_.layout = std::make_shared<ShardLayout>(
        *MakeShardLayout(manifest, /*num_shards=*/1, /*ordinal=*/0));
    SetBuffer(std::make_unique<HostBuffer>(static_cast<size_t>(bytes())));
    version_.epoch = kEpoch;
    version_.version = 9;
  }

  int64_t bytes() const {
    return version_.layout->num_elements * static_cast<int64_t>(sizeof(float));
  }
  void SetBuffer(std::unique_ptr<Buffer> buffer) {
    version_.snapshot = snapshot_ = nullptr;
    buffers_.f32 = std::move(buffer);
    snapshot_ = std::make_shared<Snapshot>(&buffers_, DType::kF32);
    version_.snapshot = snapshot_;
  }
  std::unique_ptr<VersionFlow> Flow(FrameForm form,
                                    const std::vector<uint32_t>& first = {}) {
    VersionFlow::Events events;
    events.revoked = [this](const absl::Status& reason) {
      revoked_.push_back(reason);
    };
    events.overtaken = [this](bool cut) { overtaken_.push_back(cut); };
    return std::make_unique<VersionFlow>(shard_.engine(), &cache_, version_,
                                         DType::kF32, form, first, events);
  }

  LoopbackShard shard_;
  PullFrameCache cache_;
  SnapshotBuffers buffers_;
  std::shared_ptr<Snapshot> snapshot_;
  PublishedVersion version_;
  std::vector<absl::Status> revoked_;
  std::vector<bool> overtaken_;
};

TEST_F(VersionFlowTest, AllFramesComeOnceTheWantedOnesFirst) {
  const auto flow = Flow(FrameForm::kPullFrame, {2, 1});
  EXPECT_FALSE(flow->in_place());
  std::vector<uint32_t> slices;
  while (!flow->done()) {
    ASSERT_TRUE(flow->ready());
    const auto frame = Parse<v1::PullFrame>(*flow->Next());
    EXPECT_EQ(frame.meta().round(), 9u);
    slices.push_back(frame.meta().slices(0));
  }
  EXPECT_THAT(slices, ElementsAre(2, 1, 0));
  const ShardStatus status = shard_.engine()->Status();
  EXPECT_EQ(status.pull_bytes, version_.layout->num_parameters * 4);
  EXPECT_EQ(status.pull_bytes_in_place, 0);
}

TEST_F(VersionFlowTest, TheLastOneOnAPushStreamSaysSo) {
  const auto flow = Flow(FrameForm::kPushAck);
  std::vector<bool> last;
  while (!flow->done()) {
    last.push_back(Parse<v1::PushAck>(*flow->Next()).last());
  }
  EXPECT_THAT(last, ElementsAre(false, false, true));
}

TEST_F(VersionFlowTest, WhatIsOnItsWayIsSentAsFarAsItIs) {
  version_.progress = std::make_shared<VersionProgress>();
  const auto flow = Flow(FrameForm::kPushAck);
  EXPECT_FALSE(flow->ready());
  version_.progress->Advance(1);
  ASSERT_TRUE(flow->ready());
  flow->Next();
  EXPECT_FALSE(flow->ready());
  version_.progress->Advance(3);
  ASSERT_TRUE(flow->ready());
  flow->Next();
  EXPECT_FALSE(flow->ready());  // its end comes with the publication alone
  version_.progress->Publish();
  ASSERT_TRUE(flow->ready());
  flow->Next();
  EXPECT_TRUE(flow->done());
}

TEST_F(VersionFlowTest, NoFrameIsReadyBeforeItsBytesAreThere) {
  snapshot_->Defer();
  const auto flow = Flow(FrameForm::kPushAck);
  EXPECT_FALSE(flow->ready());
  snapshot_->Finish(absl::OkStatus());
  EXPECT_TRUE(flow->ready());
}

TEST_F(VersionFlowTest, InSharedMemoryItSaysWhereTheVersionIs) {
  SetBuffer(*SharedBuffer::Allocate(BufferUse::kSnapshot, bytes()));
  const auto flow = Flow(FrameForm::kPlace);
  EXPECT_TRUE(flow->in_place());
  const auto frame = Parse<v1::PullFrame>(*flow->Next());
  EXPECT_TRUE(flow->done());
  EXPECT_EQ(frame.place().offsets_size(), 3);
  EXPECT_EQ(frame.payload(), "");
  EXPECT_EQ(shard_.engine()->Status().pull_bytes_in_place,
            version_.layout->num_parameters * 4);
}

TEST_F(VersionFlowTest, WhereItIsNotSharedItIsSent) {
  const auto flow = Flow(FrameForm::kPlace);
  EXPECT_FALSE(flow->in_place());
  const auto frame = Parse<v1::PullFrame>(*flow->Next());
  EXPECT_FALSE(frame.payload().empty());
}

TEST_F(VersionFlowTest, ItsReaderHearsWhenItsMemoryIsWantedBack) {
  auto flow = Flow(FrameForm::kPullFrame);
  while (!flow->done()) flow->Next();  // its bytes may wait for a reader
  version_.snapshot->Revoke();
  ASSERT_EQ(revoked_.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(revoked_[0]));
  EXPECT_THAT(revoked_[0].message(),
              HasSubstr("version 9 was replaced while it was being pulled"));
  flow.reset();
  // One that comes too late hears so at once.
  Flow(FrameForm::kPullFrame);
  EXPECT_EQ(revoked_.size(), 2u);
}

// A round waits neither for the reader nor for what gRPC has of its frames.
TEST_F(VersionFlowTest, ItLetsGoOfTheVersionWhateverItsReaderDoes) {
  for (const bool shared : {false, true}) {
    std::vector<SnapshotBuffers> memories(1);
    memories[0].f32 =
        std::make_unique<HostBuffer>(static_cast<size_t>(bytes()));
    if (shared) {
      memories[0].f32 = *SharedBuffer::Allocate(BufferUse::kSnapshot, bytes());
    }
    SnapshotPool pool(std::move(memories), DType::kF32);
    version_.snapshot = pool.AcquireWithin(absl::ZeroDuration());
    const auto flow = Flow(shared ? FrameForm::kPlace : FrameForm::kPullFrame);
    const grpc::ByteBuffer unread = *flow->Next();
    version_.snapshot->Revoke();
    if (!shared) {
      EXPECT_FALSE(flow->ready());
      EXPECT_FALSE(flow->Next().has_value());
    }
    version_.snapshot = nullptr;
    EXPECT_EQ(pool.Available(), shared);
    EXPECT_NE(pool.TakeOverWithin(absl::ZeroDuration()), nullptr);
  }
  EXPECT_EQ(revoked_.size(), 2u);
  // Of the first one an error follows; who maps it looks at the generation.
  EXPECT_EQ(overtaken_, std::vector<bool>({false}));
}

TEST_F(VersionFlowTest, WhoMayHaveItAllIsCutOffBeforeItsBytesChange) {
  std::vector<SnapshotBuffers> memories(1);
  memories[0].f32 = std::make_unique<HostBuffer>(static_cast<size_t>(bytes()));
  SnapshotPool pool(std::move(memories), DType::kF32);
  version_.snapshot = pool.AcquireWithin(absl::ZeroDuration());
  const auto flow = Flow(FrameForm::kPullFrame);
  std::vector<grpc::ByteBuffer> unread;
  while (!flow->done()) unread.push_back(*flow->Next());
  version_.snapshot->Revoke();
  version_.snapshot = nullptr;
  EXPECT_TRUE(overtaken_.empty());
  EXPECT_NE(pool.TakeOverWithin(absl::ZeroDuration()), nullptr);
  EXPECT_EQ(overtaken_, std::vector<bool>({true}));
}

TEST_F(VersionFlowTest, OneOfAnEpochThatIsOverSaysSo) {
  auto flow = Flow(FrameForm::kPullFrame);
  ASSERT_TRUE(shard_.engine()->Attach(kEpoch + 1, nullptr).ok());
  version_.snapshot->Revoke();
  ASSERT_EQ(revoked_.size(), 1u);
  EXPECT_THAT(revoked_[0].message(), HasSubstr("stale epoch 7"));
  EXPECT_THAT(revoked_[0].message(), HasSubstr("current epoch 8"));
}

TEST_F(VersionFlowTest, WhoHasLetGoHearsNothing) {
  Flow(FrameForm::kPullFrame);
  version_.snapshot->Revoke();
  EXPECT_TRUE(revoked_.empty());
}

// Pulls of float32 bytes that come behind what is published: over a Pull
// stream, in shared memory, and on a Push stream.

// Copies that fail: each reader has them tried again.
constexpr int kAlways = 1 << 20;

class Float32PullTest : public ::testing::Test {
 protected:
  Float32PullTest()
      : backend_(&gate_),
        shard_(0, 1, [this](const ShardOptions& options, Backend*) {
          ShardOptions narrowed = options;
          narrowed.pull_dtype = DType::kBF16;
          narrowed.shared_memory = true;
          return std::make_unique<ShardEngine>(narrowed, &backend_);
        }) {
    shard_.Begin(OneTensor(2));
    shard_.Serve();
    channel_ = shard_.NewChannel();
    Push(v1::SEED, {1.0f, -2.0f});
    EXPECT_TRUE(shard_.PublishSeed().ok());
  }
  // Else the shard would wait for the bytes.
  ~Float32PullTest() override { gate_.Open(); }

  void Push(v1::PushKind kind, const std::vector<float>& values) {
    const auto pushed = PushOne(channel_, FrameOf(values, kind, 0));
    ASSERT_TRUE(pushed.second.ok()) << pushed.second.error_message();
  }
  // From version 0 to version 1: 0.75 and -2.25.
  void RunRound() {
    Push(v1::GRADIENT, {0.5f, 0.5f});
    Phase phase;
    phase.epoch = kEpoch;
    phase.rows = {{0, kSession, 0}};
    phase.kind = PhaseKind::kClose;
    ASSERT_TRUE(shard_.engine()->RunPhase(phase).ok());
    phase.kind = PhaseKind::kUpdate;
    phase.publishes = true;
    phase.publish.version = 1;
    phase.step.coefficients = {1.0};
    phase.step.learning_rate = 0.5;
    const auto result = shard_.engine()->RunPhase(phase);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  static v1::PullRequest PullOf(v1::DType dtype) {
    v1::PullRequest request;
    request.set_epoch(kEpoch);
    request.set_version(1);
    request.set_dtype(dtype);
    return request;
  }

  DeferralGate gate_;
  DeferringBackend backend_;
  LoopbackShard shard_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(Float32PullTest, WaitsForItsBytesAndNoOtherPullWaitsForThem) {
  gate_.Close();
  // One that waits for the version, and one that finds it published.
  const auto pull = [this] { return PullAll(channel_, PullOf(v1::F32)); };
  auto early = std::async(std::launch::async, pull);
  RunRound();
  auto late = std::async(std::launch::async, pull);
  const auto [narrowed, status] = PullAll(channel_, PullOf(v1::BF16));
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(narrowed.size(), 1u);
  uint16_t values[2];
  ASSERT_EQ(narrowed[0].payload().size(), sizeof(values));
  std::memcpy(values, narrowed[0].payload().data(), sizeof(values));
  EXPECT_EQ(FloatOfBf16(values[0]), 0.75f);
  EXPECT_EQ(FloatOfBf16(values[1]), -2.25f);
  gate_.Open();
  for (auto* const pulled : {&early, &late}) {
    const auto [frames, f32_status] = pulled->get();
    ASSERT_TRUE(f32_status.ok()) << f32_status.error_message();
    ASSERT_EQ(frames.size(), 1u);
    const float expected[] = {0.75f, -2.25f};
    ASSERT_EQ(frames[0].payload().size(), sizeof(expected));
    EXPECT_EQ(std::memcmp(frames[0].payload().data(), expected, 8), 0);
  }
}

// Who maps a version reads it when it is told where it is: never, then.
TEST_F(Float32PullTest, InSharedMemoryIsNotToldOfBytesThatNeverCome) {
  v1::PullRequest request = PullOf(v1::F32);
  request.set_in_place(true);
  gate_.Fail(kAlways);
  RunRound();
  const auto [frames, status] = PullAll(channel_, request);
  EXPECT_TRUE(frames.empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Float32PullTest, GetsAnErrorWhenTheyNeverCome) {
  gate_.Fail(kAlways);
  RunRound();
  const auto [frames, status] = PullAll(channel_, PullOf(v1::F32));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("no copy"));
  EXPECT_TRUE(PullAll(channel_, PullOf(v1::BF16)).second.ok());
}

TEST_F(Float32PullTest, EndsWhileItWaitsAsAtAnyTime) {
  gate_.Close();
  RunRound();
  grpc::ClientContext context;
  auto stub = v1::Shard::NewStub(channel_);
  const auto stream = stub->Pull(&context, PullOf(v1::F32));
  context.TryCancel();
  v1::PullFrame frame;
  EXPECT_FALSE(stream->Read(&frame));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  gate_.Open();
  EXPECT_TRUE(PullAll(channel_, PullOf(v1::F32)).second.ok());
}

TEST_F(Float32PullTest, OnAPushStreamIsWokenForThem) {
  gate_.Close();
  RunRound();
  PullFrameCache cache;
  std::promise<void> woken;
  StreamPulls::Stream stream;
  stream.wake = [&] { woken.set_value(); };
  stream.end = [](const absl::Status& reason) { FAIL() << reason; };
  const auto pulls =
      std::make_shared<StreamPulls>(shard_.engine(), &cache, stream);
  PullQuery query;
  query.epoch = kEpoch;
  query.version = 1;
  query.dtype = DType::kF32;
  ASSERT_TRUE(pulls->Ask(query).ok());
  EXPECT_FALSE(pulls->Next().has_value());
  gate_.Open();
  woken.get_future().wait();
  EXPECT_TRUE(pulls->Next().has_value());
}

// So high that a header is larger than what gRPC copies instead of sharing.
constexpr uint64_t kEpoch = uint64_t{3} << 60;

// Slices of 2^20, 2^20 and 5 elements: a frame of its own for the first, then
// one for the second, and one for the rest, as 4 MiB hold one full slice.
class PullFramesTest : public testing::Test {
 protected:
  PullFramesTest() {
    const Manifest manifest = {{{"a", {(2 << 20) + 5}, "", false}}};
    version_.layout = std::make_shared<ShardLayout>(
        *MakeShardLayout(manifest, /*num_shards=*/1, /*ordinal=*/0));
    buffers_.f32 = std::make_unique<HostBuffer>(
        static_cast<size_t>(version_.layout->num_elements) * sizeof(float));
    char* const bytes = buffers_.f32->host();
    for (int64_t i = 0; i < buffers_.f32->num_bytes(); ++i) {
      bytes[i] = static_cast<char>(i * 7 + i / 251);
    }
    version_.epoch = kEpoch;
    version_.version = 9;
    version_.snapshot = std::make_shared<Snapshot>(&buffers_, DType::kF32);
  }

  SnapshotBuffers buffers_;
  PublishedVersion version_;
};

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return slices;
}

v1::PullFrame Parse(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  for (const grpc::Slice& slice : SlicesOf(buffer)) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::PullFrame frame;
  EXPECT_TRUE(frame.ParseFromString(bytes));
  return frame;
}

// Slice 0 is in frame 0, 1 in 1 and 2 in 2: see PullFramesTest.
TEST_F(PullFramesTest, FramesOfTheFirstSlicesComeFirst) {
  const PullFrames frames(version_, DType::kF32);
  ASSERT_EQ(frames.num_frames(), 3u);
  const struct {
    std::vector<uint32_t> first;
    std::vector<size_t> order;
  } cases[] = {
      {{}, {0, 1, 2}},
      {{2}, {2, 0, 1}},
      {{2, 1, 2, 0}, {2, 1, 0}},
      {{1, 3, 0xffffffffu}, {1, 0, 2}},  // there are no such slices
  };
  for (const auto& test : cases) {
    EXPECT_EQ(frames.Order(test.first), test.order);
  }
}

TEST_F(PullFramesTest, FramesHaveTheVersionsBytes) {
  PullFrames frames(version_, DType::kF32);
  size_t position = 0;
  for (size_t i = 0; i < frames.num_frames(); ++i) {
    const v1::PullFrame frame =
        Parse(frames.MakeBuffer(i, version_, FrameForm::kPullFrame));
    EXPECT_EQ(frame.meta().epoch(), kEpoch);
    EXPECT_EQ(frame.meta().round(), 9u);
    EXPECT_EQ(frame.meta().dtype(), v1::F32);
    ASSERT_EQ(frame.meta().slices_size(), frame.meta().crc32c_size());
    std::string expected;
    for (int s = 0; s < frame.meta().slices_size(); ++s, ++position) {
      const ElementRange& range = version_.layout->ranges[position];
      const std::string bytes(buffers_.f32->host() + range.begin * 4,
                              static_cast<size_t>(range.num_elements) * 4);
      EXPECT_EQ(frame.meta().crc32c(s), Crc32c(bytes));
      expected += bytes;
    }
    EXPECT_TRUE(frame.payload() == expected) << i;
    EXPECT_EQ(frames.payload_bytes(i), static_cast<int64_t>(expected.size()));
  }
  EXPECT_EQ(position, version_.layout->ranges.size());
}

// In acknowledgements the same comes as field 7, and the last one says so.
TEST_F(PullFramesTest, FramesOfAPushStreamSayTheSame) {
  PullFrames frames(version_, DType::kF32);
  for (size_t i = 0; i < frames.num_frames(); ++i) {
    const v1::PullFrame frame =
        Parse(frames.MakeBuffer(i, version_, FrameForm::kPullFrame));
    FrameReader reader;
    v1::PushAck ack;
    ASSERT_TRUE(
        reader
            .InitAck(frames.MakeBuffer(i, version_, FrameForm::kPushAck), &ack)
            .ok());
    EXPECT_EQ(ack.meta().SerializeAsString(), frame.meta().SerializeAsString());
    EXPECT_EQ(ack.last(), i + 1 == frames.num_frames());
    EXPECT_EQ(reader.remaining_bytes(), frames.payload_bytes(i));
    std::string payload(frame.payload().size(), '\0');
    reader.Read(&payload[0], reader.remaining_bytes());
    EXPECT_TRUE(payload == frame.payload()) << i;
  }
}

// What stands before a payload is the same memory in all pulls of a frame, also
// when they come at the same time.
TEST_F(PullFramesTest, PullsShareAFramesHeader) {
  PullFrames frames(version_, DType::kF32);
  constexpr int kPulls = 4;
  std::vector<grpc::ByteBuffer> buffers(kPulls);
  std::vector<std::thread> threads;
  for (grpc::ByteBuffer& buffer : buffers) {
    threads.emplace_back([&] {
      buffer = frames.MakeBuffer(0, version_, FrameForm::kPullFrame);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<grpc::Slice> first = SlicesOf(buffers[0]);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(reinterpret_cast<const char*>(first[1].begin()),
            buffers_.f32->host());
  for (const grpc::ByteBuffer& buffer : buffers) {
    EXPECT_EQ(SlicesOf(buffer)[0].begin(), first[0].begin());
  }
}

TEST_F(PullFramesTest, HoldsTheVersionAsLongAsAFrameIsThere) {
  PullFrames frames(version_, DType::kF32);
  std::weak_ptr<const Snapshot> watch = version_.snapshot;
  grpc::ByteBuffer buffer =
      frames.MakeBuffer(0, version_, FrameForm::kPullFrame);
  version_.snapshot = nullptr;
  EXPECT_FALSE(watch.expired());
  buffer.Clear();
  EXPECT_TRUE(watch.expired());
}

// Four slices, in shared memory.
class PlaceFramesTest : public testing::Test {
 protected:
  PlaceFramesTest() {
    const Manifest manifest = {{{"a", {40}, "", false},
                                {"b", {40}, "", false},
                                {"c", {20}, "", false},
                                {"d", {20}, "", false}}};
    version_.layout = std::make_shared<ShardLayout>(
        *MakeShardLayout(manifest, /*num_shards=*/1, /*ordinal=*/0));
    buffers_.f32 = *SharedBuffer::Allocate(
        BufferUse::kSnapshot,
        version_.layout->num_elements * static_cast<int64_t>(sizeof(float)));
    version_.epoch = 3;
    version_.version = 9;
    version_.snapshot = std::make_shared<Snapshot>(&buffers_, DType::kF32);
  }

  std::vector<grpc::ByteBuffer> Frames(DType dtype,
                                       const std::vector<uint32_t>& first,
                                       bool takes_device = false) {
    return MakePlaceFrames(version_, dtype, first, takes_device, &on_device_);
  }

  bool on_device_ = false;
  SnapshotBuffers buffers_;
  PublishedVersion version_;
};

TEST_F(PlaceFramesTest, TheFirstSlicesComeFirst) {
  const struct {
    std::vector<uint32_t> first;
    std::vector<uint32_t> order;
  } kCases[] = {
      {{}, {0, 1, 2, 3}},
      {{2}, {2, 0, 1, 3}},
      {{3, 1, 3}, {3, 1, 0, 2}},
      {{4, 1000000, ~0u, 1}, {1, 0, 2, 3}},  // none of these but the last
  };
  for (const auto& expected : kCases) {
    const std::vector<grpc::ByteBuffer> frames =
        Frames(DType::kF32, expected.first);
    ASSERT_EQ(frames.size(), 1u);
    const v1::PullFrame frame = Parse(frames[0]);
    const std::vector<uint32_t> order(frame.meta().slices().begin(),
                                      frame.meta().slices().end());
    EXPECT_EQ(order, expected.order);
    ASSERT_EQ(frame.place().offsets_size(), 4);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(frame.place().offsets(i),
                static_cast<uint64_t>(version_.layout->ranges[order[i]].begin) *
                    sizeof(float));
    }
  }
}

// As long as the device has its values.
TEST_F(PlaceFramesTest, OnADeviceForWhoTakesIt) {
  const auto head = std::make_shared<Region>(
      *SharedMemory::Create(Region::MappedBytes(0),
                            SharedMemory::Others::kRead),
      0);
  head->BeginGeneration();
  auto snapshot = std::make_shared<Snapshot>(&buffers_, DType::kF32);
  snapshot->NoteMaster(head);
  version_.snapshot = snapshot;
  v1::PullFrame frame = Parse(Frames(DType::kF32, {}, true)[0]);
  EXPECT_TRUE(on_device_);
  EXPECT_EQ(frame.place().region(), head->number());
  EXPECT_EQ(frame.place().generation(), 1u);
  EXPECT_EQ(frame.place().offsets_size(), 4);
  frame = Parse(Frames(DType::kF32, {}, false)[0]);
  EXPECT_FALSE(on_device_);
  EXPECT_NE(frame.place().region(), head->number());
  head->BeginGeneration();  // master is written
  frame = Parse(Frames(DType::kF32, {}, true)[0]);
  EXPECT_FALSE(on_device_);
  EXPECT_NE(frame.place().region(), head->number());
}

TEST_F(PlaceFramesTest, NoFramesOfWhatIsNotShared) {
  EXPECT_TRUE(Frames(DType::kBF16, {}).empty());
}

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

v1::PullRequest GoodRequest() {
  v1::PullRequest request;
  request.set_epoch(7);
  request.set_version(3);
  request.set_latest(true);
  request.set_dtype(v1::BF16);
  return request;
}

TEST(PullQueryTest, TakesEveryField) {
  const absl::StatusOr<PullQuery> query =
      ParsePullQuery(Bytes(GoodRequest().SerializeAsString()));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->epoch, 7u);
  EXPECT_EQ(query->version, 3u);
  EXPECT_TRUE(query->latest);
  EXPECT_EQ(query->dtype, DType::kBF16);
}

TEST(PullQueryTest, TheRequestMayLieInSeveralSlices) {
  const std::string bytes = GoodRequest().SerializeAsString();
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, 1)),
                                grpc::Slice(bytes.substr(1))};
  EXPECT_EQ(ParsePullQuery(grpc::ByteBuffer(slices, 2))->version, 3u);
}

TEST(PullQueryTest, TakesSoManyFirstSlicesAndNoMore) {
  v1::PullRequest request = GoodRequest();
  for (int i = 0; i < kMaxFirstSlices; ++i) {
    request.add_first_slices(0xffffffffu - static_cast<uint32_t>(i));
  }
  const absl::StatusOr<PullQuery> query =
      ParsePullQuery(Bytes(request.SerializeAsString()));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->first_slices.size(), size_t{kMaxFirstSlices});
  EXPECT_EQ(query->first_slices[1], 0xfffffffeu);
  request.add_first_slices(1);
  EXPECT_EQ(ParsePullQuery(Bytes(request.SerializeAsString())).status(),
            absl::InvalidArgumentError(
                "first_slices has 201 slices; allowed: at most 200"));
}

TEST(PullQueryTest, RefusesOtherBytesAndLongOnes) {
  for (const std::string& bytes :
       {std::string("junk"), std::string(2000, '\0'),
        GoodRequest().SerializeAsString() + std::string(2000, 'x')}) {
    EXPECT_EQ(ParsePullQuery(Bytes(bytes)).status(),
              absl::InvalidArgumentError("malformed PullRequest"));
  }
}

TEST(PullQueryTest, RefusesDTypesThatDoNotExist) {
  for (const int dtype : {0, 4, 257, -1}) {
    v1::PullRequest request = GoodRequest();
    request.set_dtype(static_cast<v1::DType>(dtype));
    const absl::Status status =
        ParsePullQuery(Bytes(request.SerializeAsString())).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("dtype is " + std::to_string(dtype) + "; allowed: F32 (1)"));
  }
}

}  // namespace
}  // namespace agg
