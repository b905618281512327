#include "server/rpc/rpc_server.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/long_poll.h"
#include "tests/server/rpc/loopback_shard.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One unary-shaped exchange without generated code.
std::string Ask(const std::shared_ptr<grpc::Channel>& channel,
                const std::string& method, const std::string& request,
                grpc::Status* status) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer buffer(&slice, 1);
  auto call = stub.PrepareUnaryCall(&context, method, buffer, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  call->Finish(&reply, status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (status->ok() && reply.Dump(&slices).ok()) {
    for (const grpc::Slice& s : slices) {
      bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
    }
  }
  return bytes;
}

// HealthCheckRequest{service = 1}, HealthCheckResponse{status = 1}: 1 is
// SERVING, 2 is NOT_SERVING.
int HealthOf(const LoopbackShard& shard, const std::string& service) {
  std::string request;
  if (!service.empty()) {
    request =
        "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  }
  grpc::Status status;
  const std::string reply =
      Ask(shard.NewChannel(), "/grpc.health.v1.Health/Check", request, &status);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return reply.size() == 2 ? reply[1] : 0;
}

TEST(RpcServerTest, HealthIsByService) {
  LoopbackShard shard;
  shard.Serve();
  for (const char* service : {"", kCoordinatorHealth, kShardHealth}) {
    EXPECT_EQ(HealthOf(shard, service), 2) << service;
  }
  EXPECT_EQ(HealthOf(shard, kLiveHealth), 1);
  shard.rpc()->SetServing(kShardHealth, true);
  EXPECT_EQ(HealthOf(shard, kShardHealth), 1);
  EXPECT_EQ(HealthOf(shard, ""), 2);
}

TEST(RpcServerTest, ReflectionIsThere) {
  LoopbackShard shard;
  shard.Serve();
  // ServerReflectionRequest{list_services = 7: ""}, as a stream of one.
  grpc::Status status;
  const std::string reply =
      Ask(shard.NewChannel(),
          "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
          std::string("\x3a\x00", 2), &status);
  ASSERT_TRUE(status.ok()) << status.error_message();
  for (const char* service : {"agg.v1.Coordinator", "agg.v1.Shard",
                              "agg.v1.ShardControl", "grpc.health.v1.Health"}) {
    EXPECT_THAT(reply, HasSubstr(service));
  }
}

TEST(RpcServerTest, APortInUseIsAnError) {
  LoopbackShard shard;
  shard.Serve();
  RpcServerOptions options;
  options.listen = shard.address();
  options.job.shards = {"127.0.0.1:1"};
  const auto second = RpcServer::Start(options, shard.engine(), nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(shard.address()));
}

TEST(RpcServerTest, OversizedMessagesAreRefused) {
  LoopbackShard shard;
  shard.Serve();
  grpc::Status status;
  Ask(shard.NewChannel(), "/agg.v1.Coordinator/Join",
      std::string((8 << 20) + 1, 'x'), &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(OpenStreamsTest, EndsAllNowAndLater) {
  OpenStreams open;
  std::vector<std::string> ended;
  const auto end = [&](const std::string& name) {
    return [&ended, name](const absl::Status& status) {
      ended.push_back(name + std::string(status.message()));
    };
  };
  open.Add(end("a"));
  const int64_t removed = open.Add(end("b"));
  open.Remove(removed);
  open.EndAll(absl::UnavailableError("!"));
  EXPECT_THAT(ended, ElementsAre("a!"));
  open.Remove(open.Add(end("c")));
  EXPECT_THAT(ended, ElementsAre("a!", "c!"));
}

TEST(ExecutorTest, RunsInOrderAndBeforeItsEnd) {
  std::vector<int> order;
  {
    Executor executor;
    for (int i = 0; i < 100; ++i) {
      executor.Run([&order, i] { order.push_back(i); });
    }
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

// A coordinator behind a loopback server is found, itself and others are told
// apart.

class CoordinatorProbeTest : public testing::Test {
 protected:
  CoordinatorProbeTest() { shard_.Serve(&coordinator_); }

  std::string Ask(uint64_t life, const std::string& job = "test") {
    return FindOtherCoordinator(
        {shard_.address(), job, life, TlsOptions(), absl::Seconds(20)});
  }

  LoopbackShard shard_{0, 1};
  FakeClock clock_;
  Coordinator coordinator_{
      CoordinatorOptions(), {shard_.engine()}, &clock_, nullptr};
};

TEST_F(CoordinatorProbeTest, FindsAnotherLifeOfTheJob) {
  const std::string other = Ask(kLoopbackLife + 1);
  EXPECT_THAT(other, HasSubstr(shard_.address()));
  EXPECT_THAT(other, HasSubstr("\"test\""));
}

TEST_F(CoordinatorProbeTest, ItselfAndOtherJobsAreNoOthers) {
  EXPECT_THAT(Ask(kLoopbackLife), IsEmpty());
  EXPECT_THAT(Ask(kLoopbackLife + 1, "another job"), IsEmpty());
}

TEST_F(CoordinatorProbeTest, NobodyThere) {
  const CoordinatorProbe probe = {shard_.address(), "test", 1};
  shard_.Stop();
  EXPECT_THAT(FindOtherCoordinator(probe), IsEmpty());
}

}  // namespace
}  // namespace agg
