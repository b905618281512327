#include "server/rpc/shard_control_service.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "proto/protocol_version.h"
#include "server/base/clock.h"
#include "server/rpc/shard_link.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1700000000000000;  // microseconds

constexpr uint64_t kLife = 0xabc;

absl::Status CheckEpoch(uint64_t epoch, int64_t now = kNow,
                        uint64_t life = kLife) {
  const ShardIdentity self{1, 2, "127.0.0.1:2", "0123", "cpu", 5, "", ""};
  v1::AttachRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_ordinal(1);
  request.set_num_shards(2);
  request.set_config_fingerprint("0123");
  request.set_epoch(epoch);
  request.set_coordinator_life(life);
  return CheckAttach(request, self, absl::FromUnixMicros(now));
}

TEST(AttachCheckTest, AnEpochIsNotFarAheadOfTheClock) {
  constexpr uint64_t kAhead = uint64_t{1} << 52;
  EXPECT_EQ(CheckEpoch(1), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kNow), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kNow + kAhead), absl::OkStatus());
  for (const uint64_t epoch :
       {uint64_t{0}, kNow + kAhead + 1, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status status = CheckEpoch(epoch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("epoch is " + std::to_string(epoch) +
                          "; allowed: 1 to 6203599627370496, "));
  }
}

// The number above the highest that anybody could have promised.
TEST(AttachCheckTest, AnEpochThatIsAboveAllIsAllowedAMomentLater) {
  constexpr uint64_t kHighest = kNow + (uint64_t{1} << 52);
  EXPECT_NE(CheckEpoch(kHighest + 1), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kHighest + 1, kNow + 1), absl::OkStatus());
}

// It has not been set yet, and the coordinator's is right.
TEST(AttachCheckTest, AClockOfTheYear1970DoesNoHarm) {
  EXPECT_EQ(CheckEpoch(kNow, 0), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kNow, -5), absl::OkStatus());
}

// Two that say none would be taken for one (P21).
TEST(AttachCheckTest, ACoordinatorSaysItsLife) {
  const absl::Status status = CheckEpoch(1, kNow, /*life=*/0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("coordinator_life is 0; allowed: random bits"));
}

class CoordinatorWatchTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  CoordinatorWatch watch_{&clock_};
};

TEST_F(CoordinatorWatchTest, AbandonedAfterFiveSecondsOnce) {
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.Begin(7, kLife);
  clock_.Advance(2 * kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.End(7);
  clock_.Advance(kResumeTime - absl::Milliseconds(1));
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(watch_.TakeAbandoned(), std::optional<uint64_t>(7));
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife)));
}

TEST_F(CoordinatorWatchTest, ComesBackInTime) {
  watch_.Begin(7, kLife);
  watch_.End(7);
  clock_.Advance(kResumeTime / 2);
  EXPECT_TRUE(watch_.Resume(7, kLife).ok());
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.End(7);
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::optional<uint64_t>(7));
}

// The shard may see the end of the broken stream long after the coordinator.
TEST_F(CoordinatorWatchTest, ComesBackBeforeTheBrokenStreamEnds) {
  watch_.Begin(7, kLife);
  EXPECT_TRUE(watch_.Resume(7, kLife).ok());
  watch_.End(7);
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
}

TEST_F(CoordinatorWatchTest, OnlyTheOneWhoBeganItResumes) {
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(0, 0)));
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife)));
  watch_.Begin(7, kLife);
  watch_.End(7);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife + 1)));
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(8, kLife)));
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(6, kLife)));
  EXPECT_TRUE(watch_.Resume(7, kLife).ok());
}

TEST_F(CoordinatorWatchTest, AFormerEpochsStreamChangesNothing) {
  watch_.Begin(7, kLife);
  watch_.Begin(8, kLife);
  watch_.End(7);
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife)));
}

// Who may attach a shard, and until when (P21).

constexpr uint64_t kFirst = 0xabc;
constexpr uint64_t kSecond = 0xdef;

TEST(ShardClaimTest, AnotherLifeIsRefusedByName) {
  ShardClaim claim;
  ASSERT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  const absl::Status refusal = claim.Take(kSecond, "host-b:1");
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal));
  EXPECT_THAT(refusal.message(), HasSubstr("host-a:1"));
  EXPECT_THAT(refusal.message(), HasSubstr("0000000000000abc"));
  claim.Release(kSecond);  // holds nothing
  EXPECT_FALSE(claim.Take(kSecond, "host-b:1").ok());
  claim.Release(kFirst);
  EXPECT_TRUE(claim.Take(kSecond, "host-b:1").ok());
}

// The next epoch's stream may begin before the end of the last one's is seen.
TEST(ShardClaimTest, ALifeHoldsUntilItsLastStreamEnds) {
  ShardClaim claim;
  ASSERT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  ASSERT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  claim.Release(kFirst);
  EXPECT_FALSE(claim.Take(kSecond, "host-b:1").ok());
  claim.Release(kFirst);
  EXPECT_TRUE(claim.Take(kSecond, "host-b:1").ok());
}

TEST(ShardClaimTest, AnEpochIsOfOneLifeAlsoWhenItsClaimHasEnded) {
  ShardClaim claim;
  EXPECT_TRUE(claim.CheckPromise(7, kFirst).ok());
  claim.Promise(7, kFirst);
  EXPECT_TRUE(claim.CheckPromise(7, kFirst).ok());
  const absl::Status status = claim.CheckPromise(7, kSecond);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(),
            "epoch 7 is promised to another coordinator (life "
            "0000000000000abc)");
  EXPECT_TRUE(claim.CheckPromise(8, kSecond).ok());
}

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
