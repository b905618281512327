// Complete servers in one process, spoken to with plain stubs.
#include "server/server.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "proto/agg.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "server/config/config_text.h"
#include "server/config/options.h"
#include "server/server_main.h"
#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ServerOptions Options(const std::string& text = "") {
  return *MakeServerOptions(WithDefaults(*ParseJobConfig(
      "workers: 1 learning_rate { rate: 0.1 } " + text, "test")));
}

StartOptions AnyPort() {
  StartOptions start;
  start.make_backend = &MakeBackend;
  start.port = 0;
  return start;
}

std::unique_ptr<v1::Coordinator::Stub> StubOf(const Server& server) {
  return v1::Coordinator::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server.port()),
                          grpc::InsecureChannelCredentials()));
}

grpc::Status Join(v1::Coordinator::Stub* stub, v1::JoinReply* reply) {
  v1::JoinRequest request;
  request.set_protocol_version(1);
  v1::Tensor* tensor = request.mutable_manifest()->add_tensors();
  tensor->set_name("x");
  tensor->add_shape(5);
  // UNAVAILABLE until the shards are attached; the test's own limit ends it.
  for (;;) {
    grpc::ClientContext context;
    const grpc::Status status = stub->Join(&context, request, reply);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status;
  }
}

TEST(ServerTest, SeveralInOneProcess) {
  auto a = Server::Start(Options("job: 'a'"), AnyPort());
  auto b = Server::Start(Options("job: 'b'"), AnyPort());
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_NE((*a)->port(), (*b)->port());
  EXPECT_EQ((*a)->metrics_port(), 0);
  v1::JoinReply reply;
  grpc::Status joined = Join(StubOf(**a).get(), &reply);
  ASSERT_TRUE(joined.ok()) << joined.error_message();
  EXPECT_EQ(reply.job(), "a");
  EXPECT_EQ(reply.shards(0), absl::StrCat("127.0.0.1:", (*a)->port()));
  joined = Join(StubOf(**b).get(), &reply);
  ASSERT_TRUE(joined.ok()) << joined.error_message();
  EXPECT_EQ(reply.job(), "b");
}

TEST(ServerTest, BeyondLoopbackItTakesTlsOrThatItIsMeant) {
  StartOptions start = AnyPort();
  start.bind = "0.0.0.0";
  const absl::Status refused = Server::Start(Options(), start).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--bind is \"0.0.0.0\""));
  EXPECT_TRUE(
      Server::Start(Options("security { insecure: true }"), start).ok());
}

TEST(ServerTest, WhatIsWrongWithTlsFilesIsSaidAtTheStart) {
  TestCa ca;
  ca.Issue("one");
  ca.Issue("two");
  const auto refusal = [&](const std::string& certificate,
                           const std::string& key, const std::string& more) {
    const absl::Status status =
        Server::Start(Options(absl::StrCat("security { tls { certificate: '",
                                           ca.path(certificate), "' key: '",
                                           ca.path(key), "' ", more, " } }")),
                      AnyPort())
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const std::string good = absl::StrCat("client_ca: '", ca.ca(), "'");
  EXPECT_THAT(
      refusal("none.pem", "one.key", good),
      HasSubstr("security.tls.certificate is \"" + ca.path("none.pem")));
  EXPECT_THAT(refusal("one.pem", "two.key", good),
              HasSubstr("it is not the key of " + ca.path("one.pem")));
  EXPECT_THAT(refusal("one.pem", "one.key", "client_ca: 'none'"),
              HasSubstr("security.tls.client_ca is \"none\""));
}

TEST(ServerTest, AFolderForCheckpointsHasToExist) {
  const std::string folder = testing::TempDir() + "/checkpoints";
  const ServerOptions options =
      Options(absl::StrCat("checkpoint { path: '", folder, "' }"));
  const absl::Status refusal = Server::Start(options, AnyPort()).status();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refusal.message()),
              HasSubstr(absl::StrCat("checkpoint.path is \"", folder,
                                     "\"; allowed: a folder that exists")));
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  EXPECT_TRUE(Server::Start(options, AnyPort()).ok());
  ASSERT_EQ(rmdir(folder.c_str()), 0);  // nothing is written at the start
}

TEST(ServerTest, TwoShardsFindEachOther) {
  // The second shard's port is known before the first shard's config.
  auto probe = Server::Start(Options(), AnyPort());
  ASSERT_TRUE(probe.ok());
  const int port = (*probe)->port();
  *probe = nullptr;
  const ServerOptions options = Options(
      absl::StrCat("shards: '127.0.0.1:1' shards: '127.0.0.1:", port, "'"));
  StartOptions second;
  second.make_backend = &MakeBackend;
  second.ordinal = 1;
  auto shard1 = Server::Start(options, second);
  ASSERT_TRUE(shard1.ok()) << shard1.status();
  auto shard0 = Server::Start(options, AnyPort());
  ASSERT_TRUE(shard0.ok()) << shard0.status();
  auto stub = StubOf(**shard0);
  v1::JoinReply reply;
  const grpc::Status joined = Join(stub.get(), &reply);
  ASSERT_TRUE(joined.ok()) << joined.error_message();
  EXPECT_EQ(reply.shards_size(), 2);

  // Every worker learns of its drain at once, with its name.
  grpc::ClientContext context;
  auto stream = stub->Attend(&context);
  v1::LeaseRenewal renewal;
  renewal.set_epoch(reply.epoch());
  renewal.set_session(reply.session());
  ASSERT_TRUE(stream->Write(renewal));
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::RENEWED);
  (*shard1)->Drain(absl::Now() + absl::Seconds(10));
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::SHARD_LOST);
  EXPECT_THAT(event.message(),
              HasSubstr(absl::StrCat("shard 1 (127.0.0.1:", port, ")")));
}

// P35: it waits for the coordinator to let it go, and not for ever.
TEST(ServerTest, AShardThatIsNotLetGoEndsAtItsDeadline) {
  const ServerOptions options =
      Options("shards: '127.0.0.1:1' shards: '127.0.0.1:2'");
  StartOptions second = AnyPort();
  second.ordinal = 1;
  auto shard = Server::Start(options, second);
  ASSERT_TRUE(shard.ok()) << shard.status();
  auto stub = v1::ShardControl::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", (*shard)->port()),
                          grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  v1::AttachRequest request;
  request.set_epoch(7);
  request.set_ordinal(1);
  request.set_num_shards(2);
  request.set_protocol_version(1);
  request.set_coordinator_life(3);
  request.set_config_fingerprint(options.fingerprint);
  ASSERT_TRUE(stream->Write(request));
  v1::AttachReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  ASSERT_EQ(reply.epoch(), 7u);

  // The coordinator hears of it, and does nothing.
  (*shard)->Drain(absl::Now() + absl::Milliseconds(300));
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_TRUE(reply.draining());
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_TRUE(reply.stopping());
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ServerTest, DrainTellsWorkersAndEndsTheirCalls) {
  auto server = Server::Start(Options(), AnyPort());
  ASSERT_TRUE(server.ok());
  auto stub = StubOf(**server);
  v1::JoinReply reply;
  ASSERT_TRUE(Join(stub.get(), &reply).ok());
  grpc::ClientContext context;
  auto stream = stub->Attend(&context);
  v1::LeaseRenewal renewal;
  renewal.set_epoch(reply.epoch());
  renewal.set_session(reply.session());
  ASSERT_TRUE(stream->Write(renewal));
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));

  (*server)->Drain(absl::Now() + absl::Seconds(10));
  (*server)->Drain(absl::Now());  // idempotent
  (*server)->Wait();
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::DRAINING);
  EXPECT_FALSE(stream->Read(&event));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("shard 0 ("));
}

// When either of them returns, nothing runs any more: nobody answers.
TEST(ServerTest, ASecondCallerOfDrainWaitsForTheFirst) {
  auto server = Server::Start(Options(), AnyPort());
  ASSERT_TRUE(server.ok());
  const auto drain = [&] {
    (*server)->Drain(absl::Now() + absl::Seconds(10));
    grpc::ClientContext context;
    v1::StatusReply reply;
    const grpc::Status status =
        StubOf(**server)->GetStatus(&context, v1::StatusRequest(), &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  };
  std::thread other(drain);
  drain();
  other.join();
}

TEST(ServerTest, MetricsOnAPortOfTheirOwn) {
  StartOptions start = AnyPort();
  start.metrics_port = 0;
  auto server = Server::Start(Options(), start);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->metrics_port(), 0);
  EXPECT_NE((*server)->metrics_port(), (*server)->port());
}

TEST(ServerTest, WhatCannotStartSaysWhy) {
  StartOptions start = AnyPort();
  start.ordinal = 1;
  EXPECT_THAT(std::string(Server::Start(Options(), start).status().message()),
              HasSubstr("ordinal is 1"));
  start = AnyPort();
  start.make_backend = nullptr;
  EXPECT_THAT(std::string(Server::Start(Options(), start).status().message()),
              HasSubstr("make_backend"));
  auto first = Server::Start(Options(), AnyPort());
  ASSERT_TRUE(first.ok());
  start = AnyPort();
  start.port = (*first)->port();
  const absl::Status in_use = Server::Start(Options(), start).status();
  EXPECT_EQ(in_use.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(in_use.message()),
              HasSubstr(absl::StrCat("127.0.0.1:", (*first)->port())));
}

const HostMemory kHost = {1000, "cgroup limit"};

TEST(ShardBudgetTest, IsFourFifthsWhereNothingIsConfigured) {
  const MemoryBudget budget = CompleteBudget({0, 0}, kHost, {500, 100});
  EXPECT_EQ(budget.host_bytes, 800);
  EXPECT_EQ(budget.device_bytes, 400);
}

TEST(ShardBudgetTest, IsAsConfigured) {
  const MemoryBudget budget = CompleteBudget({900, 450}, kHost, {500, 100});
  EXPECT_EQ(budget.host_bytes, 900);
  EXPECT_EQ(budget.device_bytes, 450);
}

TEST(ShardBudgetTest, OneAboveTheContainersIsSaid) {
  const auto log = [](int64_t host_bytes, const HostMemory& host) {
    testing::internal::CaptureStderr();
    CompleteBudget({host_bytes, 0}, host, {});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log(801, kHost),
              testing::HasSubstr("memory_budget_bytes is 801, more than 80% of "
                                 "the cgroup limit of 1000 bytes"));
  for (const std::string& quiet :
       {log(800, kHost), log(0, kHost), log(1 << 20, {0, "unknown"})}) {
    EXPECT_THAT(quiet, testing::Not(testing::HasSubstr("memory_budget_bytes")));
  }
}

TEST(ShardBudgetTest, LeavesTheDeviceOutWithoutOne) {
  EXPECT_EQ(CompleteBudget({0, 0}, kHost, {}).device_bytes, 0);
}

TEST(StopRequestTest, TheFirstReasonCounts) {
  StopRequest stop;
  stop.Ask("drain request");
  stop.Ask("signal 15");
  EXPECT_EQ(stop.Wait(), "drain request");
  EXPECT_EQ(stop.Wait(), "drain request");
}

TEST(StopRequestTest, IsWaitedFor) {
  StopRequest stop;
  std::string reason;
  std::thread waiting([&] { reason = stop.Wait(); });
  stop.Ask("signal 15");
  waiting.join();
  EXPECT_EQ(reason, "signal 15");
}

TEST(BindHostTest, LoopbackByDefault) {
  EXPECT_EQ(BindHost({"10.0.0.1", 5}, ""), "127.0.0.1");
  EXPECT_EQ(BindHost({"::1", 5}, ""), "::1");
  EXPECT_EQ(BindHost({"10.0.0.1", 5}, "0.0.0.0"), "0.0.0.0");
}

TEST(BindHostTest, BeyondLoopbackItTakesTlsOrThatItIsMeant) {
  EXPECT_TRUE(CheckBind("127.0.0.1", /*tls=*/false, /*insecure=*/false).ok());
  EXPECT_TRUE(CheckBind("::1", false, false).ok());
  EXPECT_TRUE(CheckBind("0.0.0.0", true, false).ok());
  EXPECT_TRUE(CheckBind("0.0.0.0", false, true).ok());
  const absl::Status refused = CheckBind("0.0.0.0", false, false);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("--bind is \"0.0.0.0\"; allowed: "),
                    HasSubstr("security { insecure: true }")));
}

TEST(BindHostTest, InsecureIsWhatOthersReachWithoutTls) {
  EXPECT_TRUE(IsInsecure("10.0.0.1", false));
  EXPECT_FALSE(IsInsecure("10.0.0.1", true));
  EXPECT_FALSE(IsInsecure("127.0.0.1", false));
}

TEST(BindHostTest, TheLogSaysIt) {
  testing::internal::CaptureStderr();
  WarnAboutBind({"10.0.0.1", 5}, "0.0.0.0", /*tls=*/false);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("insecure: listening on 0.0.0.0 without TLS"));
  testing::internal::CaptureStderr();
  WarnAboutBind({"10.0.0.1", 5}, "127.0.0.1", false);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(Not(HasSubstr("insecure")), HasSubstr("without --bind")));
  testing::internal::CaptureStderr();
  WarnAboutBind({"10.0.0.1", 5}, "0.0.0.0", /*tls=*/true);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace agg
