// Rows and parameters over Unix sockets: real servers and clients on one host.
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/protocol_version.h"
#include "tests/e2e/loopback_job.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int kShards = 2;
constexpr char kConfig[] = "workers: 1 learning_rate { rate: 0.1 } ";

Manifest SmallManifest() { return ShapedManifest({{20, 3}, {7}, {5}}); }

std::unique_ptr<AggClient> Connect(const LoopbackJob& job, bool local_sockets,
                                   int channels_per_shard = 1) {
  ClientOptions options = job.Options(0, SmallManifest());
  options.local_sockets = local_sockets;
  options.shared_memory = false;
  options.channels_per_shard = channels_per_shard;
  absl::StatusOr<std::unique_ptr<AggClient>> client =
      AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

// One round; the parameters that come of it.
HostTensors Round(AggClient* client) {
  const Manifest manifest = SmallManifest();
  HostTensors parameters = MakeTensors(manifest, 7);
  EXPECT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  const absl::StatusOr<RoundOutcome> outcome = client->PushPull(
      Views(MakeTensors(manifest, 8)), {}, MutableViews(&parameters));
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return parameters;
}

// As the coordinator tells it to everybody who has the manifest.
std::vector<std::string> SocketsOf(const LoopbackJob& job) {
  const auto stub = v1::Coordinator::NewStub(grpc::CreateChannel(
      job.coordinator(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::JoinReply reply;
  const grpc::Status status = stub->Observe(&context, request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {reply.local_sockets().begin(), reply.local_sockets().end()};
}

// How many sockets of this host have the abstract name: one listens, and one
// is the server's end of each connection.
int NumSockets(const std::string& name) {
  std::ifstream table("/proc/net/unix");
  int number = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.find(" @" + name) != std::string::npos) ++number;
  }
  return number;
}

TEST(LocalSocket, CarriesAWorkersRounds) {
  LoopbackJob job(kShards, kConfig);
  const std::unique_ptr<AggClient> client = Connect(job, true);
  EXPECT_THAT(client->job().transports, ElementsAre("unix", "unix"));
  const HostTensors parameters = Round(client.get());
  const std::vector<std::string> sockets = SocketsOf(job);
  ASSERT_THAT(sockets, SizeIs(kShards));
  EXPECT_EQ(std::set<std::string>(sockets.begin(), sockets.end()).size(),
            sockets.size());
  for (const std::string& socket : sockets) EXPECT_GE(NumSockets(socket), 2);
  // An observer, too.
  EXPECT_EQ(job.Parameters(SmallManifest()), parameters);
}

TEST(LocalSocket, CarriesPushAndPullApart) {
  LoopbackJob job(kShards, kConfig);
  const std::unique_ptr<AggClient> client = Connect(job, true, 2);
  // A small round is one trip on one connection; a Pull has its own.
  HostTensors parameters = Round(client.get());
  ASSERT_TRUE(client->PullLatest(MutableViews(&parameters)).ok());
  for (const std::string& socket : SocketsOf(job)) {
    EXPECT_GE(NumSockets(socket), 3);
  }
}

TEST(LocalSocket, IsNotUsedByAClientThatDoesNotWantIt) {
  LoopbackJob job(kShards, kConfig);
  const std::unique_ptr<AggClient> client = Connect(job, false);
  EXPECT_THAT(client->job().transports, ElementsAre("tcp", "tcp"));
  const HostTensors parameters = Round(client.get());
  for (const std::string& socket : SocketsOf(job)) {
    EXPECT_EQ(NumSockets(socket), 1);
  }
  LoopbackJob other(kShards, kConfig);
  EXPECT_EQ(Round(Connect(other, true).get()), parameters);
}

TEST(LocalSocket, CanBeTurnedOff) {
  LoopbackJob job(kShards, std::string(kConfig) + "unix_socket: 'off'");
  const std::unique_ptr<AggClient> client = Connect(job, true);
  EXPECT_THAT(client->job().transports, ElementsAre("tcp", "tcp"));
  Round(client.get());
  EXPECT_THAT(SocketsOf(job), ElementsAre("", ""));
}

// gRPC would send the connection to a proxy of the environment.
TEST(LocalSocket, IsNotAskedOfAProxy) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  setenv("no_proxy", "127.0.0.1", 1);
  LoopbackJob job(kShards, kConfig);
  const std::unique_ptr<AggClient> client = Connect(job, true);
  EXPECT_THAT(client->job().transports, ElementsAre("unix", "unix"));
  Round(client.get());
  unsetenv("http_proxy");
  unsetenv("no_proxy");
}

// A connection that breaks is a lost process, as with TCP.
TEST(LocalSocket, BreaksWithItsShard) {
  LoopbackJob job(kShards, kConfig);
  const std::unique_ptr<AggClient> client = Connect(job, true);
  Round(client.get());
  job.Stop(1);
  const Manifest manifest = SmallManifest();
  HostTensors parameters = MakeTensors(manifest, 7);
  EXPECT_EQ(client
                ->PushPull(Views(MakeTensors(manifest, 9)), {},
                           MutableViews(&parameters))
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace agg
