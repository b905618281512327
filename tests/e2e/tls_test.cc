// Whole jobs with mutual TLS: real servers and clients on one host.
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.grpc.pb.h"
#include "proto/channel_credentials.h"
#include "proto/protocol_version.h"
#include "server/base/local_socket.h"
#include "tests/e2e/loopback_job.h"
#include "tests/server/tls/test_certificates.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kShards = 2;
constexpr char kConfig[] = "workers: 1 learning_rate { rate: 0.1 } ";
// For what happens at the latest then: files are looked at once a second.
constexpr absl::Duration kLongest = absl::Seconds(60);

Manifest SmallManifest() { return ShapedManifest({{20, 3}, {7}, {5}}); }

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    ca_.Issue("server");
    TestRequest worker;
    worker.names = "URI:spiffe://agg/worker/worker";
    ca_.Issue("worker", worker);
  }

  std::string Config() const {
    return absl::StrCat(kConfig, "security { tls { certificate: \"",
                        ca_.path("server.pem"), "\" key: \"",
                        ca_.path("server.key"), "\" client_ca: \"", ca_.ca(),
                        "\" reload_seconds: 0.01 } } ");
  }

  static ClientOptions Options(const LoopbackJob& job, const TlsOptions& tls) {
    ClientOptions options = job.Options(0, SmallManifest());
    options.tls = tls;
    // A wrong certificate does not become right, but Connect tries again: a
    // server may have its files renewed.
    options.connect_timeout = absl::Seconds(2);
    return options;
  }

  std::unique_ptr<AggClient> Connect(const LoopbackJob& job) {
    ClientOptions options = Options(job, ca_.options("worker"));
    options.connect_timeout = kLongest;
    absl::StatusOr<std::unique_ptr<AggClient>> client =
        AggClient::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Why this client does not get in.
  static std::string Refusal(const ClientOptions& options) {
    const absl::Status status = AggClient::Connect(options).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }
  static std::string Refusal(const LoopbackJob& job, const TlsOptions& tls) {
    return Refusal(Options(job, tls));
  }

  static void Seed(AggClient* client) {
    HostTensors parameters = MakeTensors(SmallManifest(), 7);
    ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
  }

  static void Round(AggClient* client) {
    const Manifest manifest = SmallManifest();
    HostTensors parameters = MakeTensors(manifest, 7);
    const absl::StatusOr<RoundOutcome> outcome = client->PushPull(
        Views(MakeTensors(manifest, 8)), {}, MutableViews(&parameters));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
  }

  // One call on a new connection. `certificate` gets the server's, in PEM.
  static grpc::Status Ask(const std::string& target, const TlsOptions& tls,
                          std::string* certificate = nullptr) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    SetServerName(tls, "localhost:1", &arguments);
    const auto stub = v1::Coordinator::NewStub(grpc::CreateCustomChannel(
        target, MakeChannelCredentials(tls), arguments));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kLongest));
    v1::StatusReply reply;
    const grpc::Status status =
        stub->GetStatus(&context, v1::StatusRequest(), &reply);
    if (certificate != nullptr && context.auth_context() != nullptr) {
      for (const grpc::string_ref& found :
           context.auth_context()->FindPropertyValues("x509_pem_cert")) {
        *certificate = std::string(found.data(), found.size());
      }
    }
    return status;
  }

  // As the coordinator tells it to everybody who has the manifest.
  v1::JoinReply Observed(const LoopbackJob& job) {
    grpc::ChannelArguments arguments;
    const TlsOptions tls = ca_.options("worker");
    const auto stub = v1::Coordinator::NewStub(grpc::CreateCustomChannel(
        job.coordinator(), MakeChannelCredentials(tls), arguments));
    grpc::ClientContext context;
    v1::ObserveRequest request;
    request.set_protocol_version(kProtocolVersion);
    v1::JoinReply reply;
    const grpc::Status status = stub->Observe(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  static std::string Text(const std::string& path) {
    std::ifstream from(path);
    return std::string(std::istreambuf_iterator<char>(from), {});
  }

  TestCa ca_;
};

// The second copies go from shard to shard, which show certificates, too.
TEST_F(TlsTest, AWorkerTrainsWithTwoShards) {
  LoopbackJob job(kShards, Config());
  const std::unique_ptr<AggClient> client = Connect(job);
  ASSERT_NE(client, nullptr);
  EXPECT_THAT(client->job().transports, ElementsAre("unix", "unix"));
  Seed(client.get());
  Round(client.get());
  Round(client.get());
}

TEST_F(TlsTest, AWorkerTrainsOverTcp) {
  LoopbackJob job(kShards, Config());
  ClientOptions options = Options(job, ca_.options("worker"));
  options.connect_timeout = kLongest;
  options.local_sockets = false;
  const auto client = AggClient::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_THAT((*client)->job().transports, Each("tcp"));
  Seed(client->get());
  Round(client->get());
}

// Who may ask for memory shows no certificate: with TLS it has to be meant.
TEST_F(TlsTest, MemoryIsSharedOnlyWhereItIsMeant) {
  {
    LoopbackJob job(1, Config());
    const std::unique_ptr<AggClient> client = Connect(job);
    EXPECT_THAT(client->job().transports, ElementsAre("unix"));
    const v1::JoinReply reply = Observed(job);
    EXPECT_THAT(reply.region_sockets(), Each(""));
  }
  LoopbackJob job(1, Config() + "shared_memory: 'on'");
  const std::unique_ptr<AggClient> client = Connect(job);
  EXPECT_THAT(client->job().transports, ElementsAre("shm"));
  Seed(client.get());
  Round(client.get());
}

TEST_F(TlsTest, TheUnixSocketIsNoWayAroundIt) {
  LoopbackJob job(1, Config());
  const std::unique_ptr<AggClient> client = Connect(job);
  const v1::JoinReply reply = Observed(job);
  ASSERT_EQ(reply.local_sockets_size(), 1);
  const std::string target = LocalSocketTarget(reply.local_sockets(0));
  EXPECT_TRUE(Ask(target, ca_.options("worker")).ok());
  for (const TlsOptions& tls : {TlsOptions(), ca_.options("")}) {
    EXPECT_EQ(Ask(target, tls).error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(Ask(job.coordinator(), tls).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(TlsTest, WithoutTls) {
  LoopbackJob job(1, Config());
  EXPECT_THAT(Refusal(job, TlsOptions()),
              AllOf(HasSubstr(job.coordinator() + " speaks TLS"),
                    HasSubstr("AGG_TLS_CA")));
}

TEST_F(TlsTest, AServerWithoutTls) {
  LoopbackJob job(1, kConfig);
  EXPECT_THAT(Refusal(job, ca_.options("worker")),
              HasSubstr(job.coordinator() + " does not answer in TLS"));
}

TEST_F(TlsTest, WithoutACertificate) {
  LoopbackJob job(1, Config());
  EXPECT_THAT(Refusal(job, ca_.options("")),
              AllOf(HasSubstr(job.coordinator() + " asks for a client"),
                    HasSubstr("AGG_TLS_CERTIFICATE")));
}

TEST_F(TlsTest, ACertificateOfAnotherCa) {
  LoopbackJob job(1, Config());
  TestCa other("other CA");
  other.Issue("worker");
  TlsOptions tls = other.options("worker");
  EXPECT_THAT(Refusal(job, tls),
              AllOf(HasSubstr("the certificate of " + job.coordinator() +
                              " is not signed by a CA of " + other.ca()),
                    HasSubstr("\"CN = test CA\"")));
  tls.ca = ca_.ca();
  EXPECT_THAT(Refusal(job, tls),
              AllOf(HasSubstr(job.coordinator() + " refuses the certificate " +
                              other.path("worker.pem")),
                    HasSubstr("\"CN = other CA\"")));
}

TEST_F(TlsTest, AnotherHost) {
  LoopbackJob job(1, Config());
  TlsOptions tls = ca_.options("worker");
  tls.server_name = "shard.example";
  EXPECT_THAT(
      Refusal(job, tls),
      AllOf(HasSubstr("the certificate of " + job.coordinator() + " is for "),
            HasSubstr("DNS:localhost"), HasSubstr("not for shard.example")));
  // The name may be said where addresses have none.
  TestRequest named;
  named.names = "DNS:shard.example";
  ca_.Issue("server", named);
  LoopbackJob other(1, Config());
  ClientOptions options = Options(other, tls);
  options.connect_timeout = kLongest;
  const auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
}

TEST_F(TlsTest, AnExpiredCertificateOfTheWorker) {
  LoopbackJob job(1, Config());
  TestRequest old;
  old.from = absl::Now() - absl::Hours(2);
  old.to = absl::Now() - absl::Hours(1);
  ca_.Issue("old", old);
  EXPECT_THAT(Refusal(job, ca_.options("old")),
              AllOf(HasSubstr("tls.certificate is \"" + ca_.path("old.pem")),
                    HasSubstr("it expired on ")));
}

TEST_F(TlsTest, FilesFromTheEnvironment) {
  LoopbackJob job(1, Config());
  const TlsOptions tls = ca_.options("worker");
  setenv("AGG_TLS_CA", tls.ca.c_str(), 1);
  setenv("AGG_TLS_CERTIFICATE", tls.certificate.c_str(), 1);
  setenv("AGG_TLS_KEY", tls.key.c_str(), 1);
  ClientOptions options = Options(job, TlsOptions());
  options.connect_timeout = kLongest;
  const auto client = AggClient::Connect(options);
  for (const char* name :
       {"AGG_TLS_CA", "AGG_TLS_CERTIFICATE", "AGG_TLS_KEY"}) {
    unsetenv(name);
  }
  EXPECT_TRUE(client.ok()) << client.status();
}

// A new CA, even, as long as the former one is there, too: whoever has joined
// goes on over its streams.
TEST_F(TlsTest, ARotationDropsNoStream) {
  LoopbackJob job(kShards, Config());
  ClientOptions options = Options(job, ca_.options("worker"));
  options.connect_timeout = kLongest;
  std::atomic<int> events{0};
  options.on_event = [&](const ClientEvent&) { ++events; };
  auto client = AggClient::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  Seed(client->get());
  Round(client->get());
  events = 0;
  std::string before, after;
  ASSERT_TRUE(Ask(job.coordinator(), ca_.options("worker"), &before).ok());

  TestCa next("next CA");
  next.Issue("server");
  next.Issue("worker");
  const std::string both =
      absl::StrCat(Text(ca_.path("ca.pem")), Text(next.path("ca.pem")));
  for (const char* file : {"server.key", "server.pem"}) {
    ca_.Write(file, Text(next.path(file)));
  }
  ca_.Write("ca.pem", both);
  const absl::Time deadline = absl::Now() + kLongest;
  grpc::Status status;
  do {
    status = Ask(job.coordinator(), next.options("worker"), &after);
  } while (!status.ok() && absl::Now() < deadline);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_NE(before, after);
  EXPECT_THAT(after, HasSubstr("BEGIN CERTIFICATE"));

  Round(client->get());
  EXPECT_EQ(events, 0);
}

// Returns a call that asks for the status, on the same connection each time.
std::function<grpc::Status()> AskOnOneConnection(const std::string& coordinator,
                                                 const TlsOptions& tls) {
  grpc::ChannelArguments arguments;
  SetServerName(tls, "localhost:1", &arguments);
  const std::shared_ptr<v1::Coordinator::Stub> stub =
      v1::Coordinator::NewStub(grpc::CreateCustomChannel(
          coordinator, MakeChannelCredentials(tls), arguments));
  return [stub] {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kLongest));
    v1::StatusReply reply;
    return stub->GetStatus(&context, v1::StatusRequest(), &reply);
  };
}

// Who was let in by a CA that is gone makes no more calls, also on a connection
// that was open before.
TEST_F(TlsTest, AConnectionEndsWithItsCa) {
  LoopbackJob job(kShards, Config());
  const TlsOptions stolen = ca_.options("worker");
  const auto ask = AskOnOneConnection(job.coordinator(), stolen);
  ASSERT_TRUE(ask().ok());
  TestCa next("next CA");
  next.Issue("server");
  next.Issue("worker");
  for (const char* file : {"server.key", "server.pem", "ca.pem"}) {
    ca_.Write(file, Text(next.path(file)));
  }
  const absl::Time deadline = absl::Now() + kLongest;
  grpc::Status status;
  do {
    status = ask();
  } while (status.ok() && absl::Now() < deadline);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
  EXPECT_FALSE(ask().ok());
  // Who is trusted gets in.
  do {
    status = Ask(job.coordinator(), next.options("worker"));
  } while (!status.ok() && absl::Now() < deadline);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// TLS looks at a certificate when a connection begins, and this one goes on.
// Whoever has a new one by then connects again: a worker loses no round.
TEST_F(TlsTest, AConnectionEndsWithItsCertificate) {
  constexpr absl::Duration kGood = absl::Seconds(10);
  LoopbackJob job(kShards, Config());
  TestCa kept("kept CA");
  TestRequest brief;
  brief.names = "URI:spiffe://agg/worker/worker";
  brief.to = absl::Now() + kGood;
  ca_.Issue("worker", brief);
  for (const char* file : {"worker.key", "worker.pem"}) {
    kept.Write(file, Text(ca_.path(file)));
  }
  TlsOptions stolen = kept.options("worker");
  stolen.ca = ca_.ca();
  const auto ask = AskOnOneConnection(job.coordinator(), stolen);
  ASSERT_TRUE(ask().ok());
  auto client = Connect(job);
  ASSERT_NE(client, nullptr);
  Seed(client.get());
  Round(client.get());
  brief.to = absl::Now() + absl::Hours(1);
  ca_.Issue("worker", brief);
  const absl::Time deadline = absl::Now() + kLongest;
  grpc::Status status;
  do {
    status = ask();
  } while (status.ok() && absl::Now() < deadline);
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(ask().ok());
  Round(client.get());
}

// The same for a client's files: its next connection has the new ones.
TEST_F(TlsTest, AClientsFilesAreReadAgain) {
  LoopbackJob job(1, Config());
  TestCa other("other CA");
  other.Issue("worker");
  TlsOptions tls = other.options("worker");
  tls.ca = ca_.ca();
  EXPECT_FALSE(Ask(job.coordinator(), tls).ok());
  for (const char* file : {"worker.key", "worker.pem"}) {
    std::ifstream from(ca_.path(file));
    other.Write(file, std::string(std::istreambuf_iterator<char>(from), {}));
  }
  const absl::Time deadline = absl::Now() + kLongest;
  grpc::Status status;
  do {
    status = Ask(job.coordinator(), tls);
  } while (!status.ok() && absl::Now() < deadline);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace agg
