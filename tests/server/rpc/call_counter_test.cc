// Every call of every service is counted with the code that its caller got.
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/call_counts.h"
#include "server/rpc/admit_call.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

// "method code" of what was counted, and the declared methods' zeros.
std::map<std::string, uint64_t> Counts(const LoopbackShard& shard) {
  std::map<std::string, uint64_t> counts;
  for (const CallCount& count : shard.calls().counts()) {
    counts[count.method + " " + count.code] = count.number;
  }
  return counts;
}

class CallCounterTest : public testing::Test {
 protected:
  CallCounterTest() { shard_.Serve(); }

  LoopbackShard shard_;
};

TEST_F(CallCounterTest, AllMethodsAreThereFromTheStart) {
  EXPECT_THAT(Counts(shard_),
              IsSupersetOf({Pair("agg.v1.Admin/SetRule OK", 0),
                            Pair("agg.v1.Coordinator/Attend OK", 0),
                            Pair("agg.v1.Coordinator/Join OK", 0),
                            Pair("agg.v1.Shard/Pull OK", 0),
                            Pair("agg.v1.ShardControl/RunPhase OK", 0)}));
}

TEST_F(CallCounterTest, UnaryCallsByCode) {
  const auto stub = v1::Coordinator::NewStub(shard_.NewChannel());
  std::vector<grpc::StatusCode> codes;
  for (int call = 0; call < 2; ++call) {
    grpc::ClientContext context;
    v1::JoinReply reply;
    codes.push_back(
        stub->Join(&context, v1::JoinRequest(), &reply).error_code());
  }
  // This shard has no coordinator.
  EXPECT_EQ(codes, std::vector<grpc::StatusCode>(
                       2, grpc::StatusCode::FAILED_PRECONDITION));
  EXPECT_THAT(
      Counts(shard_),
      IsSupersetOf({Pair("agg.v1.Coordinator/Join OK", 0),
                    Pair("agg.v1.Coordinator/Join FAILED_PRECONDITION", 2)}));
}

TEST_F(CallCounterTest, StreamsByCode) {
  shard_.Begin(OneTensor(2));
  const auto channel = shard_.NewChannel();
  const auto pushed = PushOne(channel, FrameOf({1, 2}, v1::SEED, 0));
  ASSERT_TRUE(pushed.second.ok()) << pushed.second.error_message();
  ASSERT_TRUE(shard_.PublishSeed().ok());
  v1::PullRequest pull;
  pull.set_epoch(kEpoch);
  pull.set_dtype(v1::F32);
  const auto pulled = PullAll(channel, pull);
  ASSERT_TRUE(pulled.second.ok()) << pulled.second.error_message();
  pull.set_epoch(kEpoch + 1);
  const auto refused = PullAll(channel, pull);
  EXPECT_EQ(refused.second.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(Counts(shard_),
              IsSupersetOf({Pair("agg.v1.Shard/Push OK", 1),
                            Pair("agg.v1.Shard/Pull OK", 1),
                            Pair("agg.v1.Shard/Pull ABORTED", 1)}));
}

TEST(CallCountsTest, WhatWasNotDeclaredIsOther) {
  CallCounts counts;
  counts.Declare("a/A");
  counts.Add("a/A", 0);
  counts.Add("b/B", 0);
  counts.Add("c/C", 14);
  counts.Add("a/A", 99);
  std::map<std::string, uint64_t> found;
  for (const CallCount& count : counts.counts()) {
    found[count.method + " " + count.code] = count.number;
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre(
                         Pair("a/A OK", 1), Pair("a/A UNKNOWN", 1),
                         Pair("other OK", 1), Pair("other UNAVAILABLE", 1)));
}

}  // namespace
}  // namespace agg
