// Every method of every service has its line in the table of roles.
#include "server/rpc/admit_call.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/admin.pb.h"
#include "proto/agg.grpc.pb.h"
#include "proto/agg.pb.h"
#include "proto/control.pb.h"
#include "proto/reduction.pb.h"
#include "server/access/access_rules.h"
#include "server/access/call_limits.h"
#include "server/access/caller_gate.h"
#include "server/base/call_counts.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

void ExpectRoles(const google::protobuf::FileDescriptor& file) {
  EXPECT_GT(file.service_count(), 0) << file.name();
  for (int s = 0; s < file.service_count(); ++s) {
    const google::protobuf::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      const std::string method =
          absl::StrCat(service.full_name(), "/", service.method(m)->name());
      const auto roles = RolesOf(method);
      ASSERT_TRUE(roles.has_value()) << method;
      EXPECT_FALSE(roles->empty()) << method;
    }
  }
}

TEST(AdmitCallTest, EveryMethodHasItsRoles) {
  ExpectRoles(*v1::JoinRequest::descriptor()->file());
  ExpectRoles(*v1::PhaseRequest::descriptor()->file());
  ExpectRoles(*v1::SetRuleRequest::descriptor()->file());
  ExpectRoles(*v1::ReduceRequest::descriptor()->file());
}

// A connection that was opened in time and first used afterwards: its call is
// cancelled, which does not keep it from its service.
TEST(AdmitCallTest, ACallByAnExpiredCertificateIsRefused) {
  CallContext context;
  const std::string method = "agg.v1.Admin/SetRule";
  EXPECT_TRUE(AdmitCall(*CallerGate::Open(), context, method).ok());
  context.SetExpired();
  const absl::Status refused =
      AdmitCall(*CallerGate::Open(), context, method).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
}

// Every call of every service is counted with the code that its caller got.

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

// What a call takes of the limits (P46), over a real connection.

CallLimits FewStreams() {
  CallLimits limits = DefaultLimits(4);
  limits.max_streams = 2;
  return limits;
}

class CallContextTest : public ::testing::Test {
 protected:
  CallContextTest() {
    shard_.set_gate(&gate_);
    shard_.Serve();
    channel_ = shard_.NewChannel();
    stub_ = v1::Shard::NewStub(channel_);
  }

  // A Push stream that the server has let in, or has refused.
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::PushFrame, v1::PushAck>> call;
  };
  std::unique_ptr<Stream> Open() {
    auto stream = std::make_unique<Stream>();
    stream->call = stub_->Push(&stream->context);
    return stream;
  }

  // Health's Check on a new connection, as a probe makes it.
  grpc::StatusCode CheckHealth() {
    grpc::GenericStub health(shard_.NewChannel());
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice nothing("");
    const auto call =
        health.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                grpc::ByteBuffer(&nothing, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    return status.error_code();
  }

  DenialCounts denials_;
  CallLimiter limiter_{FewStreams(), {}, Clock::Real()};
  CallerGate gate_{CallerGate::Parts{nullptr, nullptr, &denials_, &limiter_}};
  LoopbackShard shard_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Shard::Stub> stub_;
};

TEST_F(CallContextTest, AStreamHoldsItsPlaceUntilItEnds) {
  // Whichever the server looks at last is refused; the others end then.
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(Open());
  std::atomic<int> last{-1};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&, i] {
      v1::PushAck ack;
      while (streams[i]->call->Read(&ack)) {
      }
      int none = -1;
      if (!last.compare_exchange_strong(none, i)) return;
      for (int other = 0; other < 3; ++other) {
        if (other != i) streams[other]->call->WritesDone();
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  const grpc::Status refused = streams[last]->call->Finish();
  streams.erase(streams.begin() + last);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("max_streams of all callers is 2; allowed: 2 at a "
                        "time; try again later"));
  EXPECT_EQ(denials_.count(DenialReason::kStreams), 1);
  for (const auto& stream : streams) EXPECT_TRUE(stream->call->Finish().ok());
  // The client may know of the end before the server has put all away.
  while (true) {
    auto third = Open();
    third->call->WritesDone();
    const grpc::Status status = third->call->Finish();
    if (status.ok()) break;
    ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST_F(CallContextTest, AStreamThatIsCancelledGivesItsPlaceBack) {
  for (int i = 0; i < 20; ++i) {
    auto stream = Open();
    stream->context.TryCancel();
    stream->call->Finish();
  }
  while (true) {
    auto stream = Open();
    stream->call->WritesDone();
    if (stream->call->Finish().ok()) break;
  }
}

// Anybody may call what is not there; the server goes on.
TEST_F(CallContextTest, AMethodThatIsNotThereIsUnimplemented) {
  grpc::GenericStub stub(channel_);
  for (const char* method : {"/agg.v1.Shard/Nothing", "/no.Service/At", "/"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer nothing;
    const auto call = stub.PrepareUnaryCall(&context, method, nothing, &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
  auto stream = Open();
  stream->call->WritesDone();
  EXPECT_TRUE(stream->call->Finish().ok());
}

TEST(CallPlacesTest, TheLastEighthIsForHostsWithFew) {
  CallPlaces places(160);
  int taken = 0;
  while (places.Take("ipv4:10.0.0.1")) ++taken;
  EXPECT_EQ(taken, 140);
  for (int host = 2; host <= 3; ++host) {
    const std::string name = absl::StrCat("ipv4:10.0.0.", host);
    int few = 0;
    while (places.Take(name)) ++few;
    EXPECT_EQ(few, host == 2 ? 16 : 4) << name;
  }
  // There is none left for anybody, and then one for each that is given back.
  EXPECT_FALSE(places.Take("ipv4:10.0.0.4"));
  places.GiveBack("ipv4:10.0.0.1");
  EXPECT_FALSE(places.Take("ipv4:10.0.0.1"));
  EXPECT_TRUE(places.Take("ipv4:10.0.0.4"));
}

TEST(CallPlacesTest, AHostIsAPeerWithoutItsPort) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.1:40"), "ipv4:10.0.0.1");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:40"), "ipv6:%5B::1%5D");
  EXPECT_EQ(HostOfPeer("unix:"), "unix:");
  EXPECT_EQ(HostOfPeer(""), "");
}

// Health's Watch: streams of which anybody may open any number.
TEST_F(CallContextTest, CallsOfOtherServicesAreBoundedAndProbesAnswered) {
  grpc::GenericStub health(channel_);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  struct Watch {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    std::unique_ptr<grpc::GenericStub> stub;
  };
  std::vector<std::unique_ptr<Watch>> open;
  int refused = 0;
  for (int i = 0; i < kMaxOtherCalls + 3; ++i) {
    // A connection takes 256.
    if (i % 200 == 0) channels.push_back(shard_.NewChannel());
    auto watch = std::make_unique<Watch>();
    watch->stub = std::make_unique<grpc::GenericStub>(channels.back());
    watch->call = watch->stub->PrepareCall(
        &watch->context, "/grpc.health.v1.Health/Watch", &watch->queue);
    void* tag;
    bool ok;
    watch->call->StartCall(nullptr);
    watch->queue.Next(&tag, &ok);
    const grpc::Slice nothing("");
    watch->call->WriteLast(grpc::ByteBuffer(&nothing, 1), grpc::WriteOptions(),
                           nullptr);
    watch->queue.Next(&tag, &ok);
    grpc::ByteBuffer answer;
    watch->call->Read(&answer, nullptr);
    watch->queue.Next(&tag, &ok);
    if (!ok) ++refused;
    open.push_back(std::move(watch));
  }
  // The last eighth is for other hosts.
  EXPECT_EQ(refused, 3 + kMaxOtherCalls / 8);
  EXPECT_EQ(denials_.count(DenialReason::kOtherCalls), refused);
  // A probe is no stream, and is answered.
  EXPECT_EQ(CheckHealth(), grpc::StatusCode::OK);
  for (auto& watch : open) {
    watch->context.TryCancel();
    grpc::Status status;
    watch->call->Finish(&status, nullptr);
    void* tag;
    bool ok;
    watch->queue.Next(&tag, &ok);
  }
}

}  // namespace
}  // namespace agg
