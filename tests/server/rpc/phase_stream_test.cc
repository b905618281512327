#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "server/rpc/shard_control_service.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using testing::HasSubstr;

struct Answer {
  PhaseResult result;
  grpc::Status status;
};

// A shard with version 0 of one tensor of two elements, and a pushed row.
class PhaseStreamTest : public testing::Test {
 protected:
  PhaseStreamTest() {
    shard_.Begin(OneTensor(2));
    shard_.Serve();
    const auto channel = shard_.NewChannel();
    EXPECT_TRUE(PushOne(channel, FrameOf({1, 2}, v1::SEED, 0)).second.ok());
    EXPECT_TRUE(shard_.PublishSeed().ok());
    EXPECT_TRUE(PushOne(channel, FrameOf({3, 4}, v1::GRADIENT, 0)).second.ok());
    stub_ = v1::ShardControl::NewStub(channel);
  }

  Answer Run(const std::vector<v1::PhaseRequest>& requests) {
    grpc::ClientContext context;
    auto stream = stub_->RunPhase(&context);
    for (const v1::PhaseRequest& request : requests) stream->Write(request);
    stream->WritesDone();
    Answer answer;
    v1::PhaseReply reply;
    while (stream->Read(&reply)) {
      AppendReply(
          reply, [&](SliceGram gram) { answer.result.grams.push_back(gram); },
          &answer.result);
    }
    answer.status = stream->Finish();
    return answer;
  }

  static v1::PhaseRequest Close() {
    v1::PhaseRequest request;
    request.set_epoch(kEpoch);
    request.mutable_close()->add_rows()->set_session(kSession);
    return request;
  }

  // In two messages: the coefficient, and the tensor that it is for.
  static std::vector<v1::PhaseRequest> Update() {
    std::vector<v1::PhaseRequest> requests(2);
    for (v1::PhaseRequest& request : requests) request.set_epoch(kEpoch);
    v1::StepPlan* step = requests[0].mutable_update();
    step->set_per_tensor(true);
    step->set_learning_rate(0.5);
    step->set_step(1);
    step->add_coefficients(1.0);
    requests[0].set_more(true);
    requests[1].mutable_update()->add_tensors(0);
    return requests;
  }

  LoopbackShard shard_;
  std::unique_ptr<v1::ShardControl::Stub> stub_;
};

TEST_F(PhaseStreamTest, APhaseMayComeInSeveralMessages) {
  const Answer closed = Run({Close()});
  ASSERT_TRUE(closed.status.ok()) << closed.status.error_message();
  ASSERT_EQ(closed.result.grams.size(), 1u);
  EXPECT_EQ(closed.result.grams[0].hi, std::vector<double>{25});
  const Answer updated = Run(Update());
  EXPECT_TRUE(updated.status.ok()) << updated.status.error_message();
}

// A caller that dies in the middle must not have half of its step done.
TEST_F(PhaseStreamTest, APhaseThatLacksItsEndIsNotRun) {
  ASSERT_TRUE(Run({Close()}).status.ok());
  const Answer half = Run({Update()[0]});
  EXPECT_EQ(half.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(half.status.error_message(),
              HasSubstr("ended before its last message"));
  EXPECT_EQ(Run({}).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(Run(Update()).status.ok());  // nothing has happened
}

TEST_F(PhaseStreamTest, MoreThanAnyJobHasIsRefused) {
  std::vector<v1::PhaseRequest> requests = Update();
  for (int i = 0; i < 100000; ++i) {
    requests[1].mutable_update()->add_tensors(0);
  }
  const Answer answer = Run(requests);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.status.error_message(),
              HasSubstr("a step has 100001 tensors"));
}

TEST_F(PhaseStreamTest, OfAnotherEpochNothingIsCollected) {
  std::vector<v1::PhaseRequest> requests = Update();
  requests.resize(1);  // its end would never come
  requests[0].set_epoch(kEpoch + 1);
  EXPECT_THAT(Run(requests).status.error_message(), HasSubstr("stale epoch"));
}

TEST_F(PhaseStreamTest, AMessageOfAnotherPhaseEndsTheCall) {
  ASSERT_TRUE(Run({Close()}).status.ok());
  const Answer mixed = Run({Update()[0], Close()});
  EXPECT_EQ(mixed.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(mixed.status.error_message(), HasSubstr("is of another one"));
}

}  // namespace
}  // namespace agg
