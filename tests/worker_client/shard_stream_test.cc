// One call, event by event: the test polls the queue, so it says what the
// stream hears first.
#include "worker_client/shard_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "worker_client/frame_source.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

constexpr uint64_t kEpoch = 7;
constexpr uint64_t kRound = 3;

// Its round is closed when the second frame comes. Takes every frame.
class ClosingShard : public v1::Shard::Service {
 public:
  grpc::Status Push(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::PushAck, v1::PushFrame>* stream) override {
    v1::PushFrame frame;
    for (int count = 1; stream->Read(&frame); ++count) {
      if (count != 2) continue;
      v1::PushAck ack;
      ack.set_epoch(kEpoch);
      ack.set_round(kRound);
      ack.set_kind(v1::GRADIENT);
      ack.set_closed(true);
      stream->Write(ack);
    }
    return grpc::Status::OK;
  }
};

class ShardStreamTest : public ::testing::Test {
 protected:
  ShardStreamTest()
      // A frame holds 4 MiB: three frames.
      : router_(*ShardRouter::Create(
            {{{"w", {3 * int64_t{1 << 20}}, "", false}}}, 1)),
        values_(static_cast<size_t>(3) << 20, 0.5f) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    const std::string address = "127.0.0.1:" + std::to_string(port);
    stream_ = std::make_unique<ShardStream>(
        ShardName{0, address},
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()),
        &queue_, &cancel_);
  }

  ~ShardStreamTest() override {
    stream_->Cancel();
    while (!stream_->Drained()) RunNext();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
    server_->Shutdown();
  }

  struct Next {
    ShardStream::Event* event = nullptr;  // null: none came
    bool ok = false;
  };
  Next Await() {
    Next next;
    void* tag = nullptr;
    if (queue_.AsyncNext(
            &tag, &next.ok,
            std::chrono::system_clock::now() + std::chrono::minutes(1)) ==
        grpc::CompletionQueue::GOT_EVENT) {
      next.event = static_cast<ShardStream::Event*>(tag);
    }
    return next;
  }
  // Whether there was one.
  bool RunNext() {
    const Next next = Await();
    if (next.event != nullptr) next.event->Run(next.ok);
    return next.event != nullptr;
  }

  ClosingShard service_;
  std::unique_ptr<grpc::Server> server_;
  CancelSource cancel_;
  grpc::CompletionQueue queue_;
  const ShardRouter router_;
  const std::vector<float> values_;
  std::unique_ptr<ShardStream> stream_;
};

// The version comes all the same, but nobody reads the rest of the row.
TEST_F(ShardStreamTest, ATripWhoseRoundIsClosedSendsNoMoreOfItsRow) {
  const std::vector<TensorView> bound = {TensorView(values_)};
  v1::FrameMeta meta;
  meta.set_epoch(kEpoch);
  meta.set_round(kRound);
  meta.set_kind(v1::GRADIENT);
  meta.set_report(true);
  FrameSource source(&router_, {bound}, 0, meta, DType::kF32,
                     std::make_shared<FrameMemory>());
  source.Add(router_.PlanFrames(0, DType::kF32, bound));
  ASSERT_EQ(source.num_frames(), 3);
  ShardStream::Trip trip;
  stream_->StartPush(&source, meta, &trip);
  ASSERT_TRUE(RunNext());        // started
  const Next written = Await();  // the first frame
  ASSERT_TRUE(written.event != nullptr);
  written.event->Run(written.ok);
  // Two are left, in any order: the second frame is written, and the shard has
  // answered. The stream hears the answer first.
  const Next one = Await();
  const Next other = Await();
  ASSERT_TRUE(one.event != nullptr && other.event != nullptr);
  EXPECT_FALSE(source.row_crc32c().has_value());
  const bool answered_first = other.event == written.event;
  const Next& answer = answered_first ? one : other;
  const Next& second = answered_first ? other : one;
  ASSERT_EQ(second.event, written.event);
  answer.event->Run(answer.ok);
  second.event->Run(second.ok);
  EXPECT_TRUE(stream_->closed());
  EXPECT_EQ(stream_->state(), ShardStream::State::kPushing);
  // It has the sum of a row whose frames are all made.
  EXPECT_FALSE(source.row_crc32c().has_value());
}

}  // namespace
}  // namespace agg
