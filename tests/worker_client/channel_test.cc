#include "worker_client/channel.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "server/base/local_socket.h"
#include "tests/worker_client/fake_job.h"
#include "tests/worker_client/recovery_fixture.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string FileWith(const std::string& name, const std::string& token) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << token << "\n";
  chmod(path.c_str(), 0600);
  return path;
}

class ClientTokenTest : public RecoveryTest {
 protected:
  void TearDown() override { unsetenv("AGG_TOKEN_FILE"); }
};

TEST_F(ClientTokenTest, GoesOverTlsAndToThisHost) {
  const std::string file = FileWith("places", "places-0123456789");
  for (const std::string& address :
       {std::string("127.0.0.1:1"), std::string("[::1]:1"),
        std::string("localhost:1"), LocalSocketTarget("agg-x")}) {
    EXPECT_TRUE(CheckToken(file, address, false).ok()) << address;
    EXPECT_NE(TokenFor(file, address, false), nullptr) << address;
  }
  for (const char* address : {"10.0.0.1:1", "127.example.org:1", "0.0.0.0:1"}) {
    EXPECT_THAT(Message(CheckToken(file, address, false)), HasSubstr(address));
    EXPECT_EQ(TokenFor(file, address, false), nullptr) << address;
    EXPECT_TRUE(CheckToken(file, address, true).ok()) << address;
    EXPECT_TRUE(CheckToken("", address, false).ok()) << address;
  }
}

TEST_F(ClientTokenTest, WhatIsSaidWinsOverTheEnvironment) {
  EXPECT_EQ(WithTokenEnvironment(""), "");
  setenv("AGG_TOKEN_FILE", "/of/the/environment", 1);
  EXPECT_EQ(WithTokenEnvironment(""), "/of/the/environment");
  EXPECT_EQ(WithTokenEnvironment("/said"), "/said");
}

// Another thread may change the environment while a client of a day's age
// recovers.
TEST_F(ClientTokenTest, TheEnvironmentIsReadWhenAClientConnects) {
  const std::string file = FileWith("connects", "connects-0123456789");
  setenv("AGG_TOKEN_FILE", file.c_str(), 1);
  Begin();
  unsetenv("AGG_TOKEN_FILE");
  const auto outcome = StepThrough(0.25f, [&] { job.Move(1); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(job.authorizations(1), AllOf(SizeIs(testing::Ge(2)),
                                           Each("Bearer connects-0123456789")));
}

TEST_F(ClientTokenTest, WithoutATokenItStaysSo) {
  Begin();
  const std::string file = FileWith("stays", "stays-0123456789");
  setenv("AGG_TOKEN_FILE", file.c_str(), 1);
  const auto outcome = StepThrough(0.25f, [&] { job.Move(1); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(job.authorizations(1), AllOf(SizeIs(testing::Ge(2)), Each("")));
}

FakeJob::Options FarShard() {
  FakeJob::Options options;
  options.num_shards = 2;
  options.said_address = "10.0.0.1:1";
  return options;
}

TEST_F(ClientTokenTest, WhoMayNotSendItToAShardLeavesTheJob) {
  FakeJob far(TwoTensors(), FarShard());
  ClientOptions options = OptionsFor(far, TwoTensors());
  options.token_file = FileWith("leaves", "leaves-0123456789");
  const absl::Status status = AggClient::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("10.0.0.1:1"));
  EXPECT_EQ(far.leaves(), 1);
  options.observer = true;
  EXPECT_EQ(AggClient::Connect(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(far.leaves(), 1);
}

// It goes there over the Unix socket, whatever the other way is called.
TEST_F(ClientTokenTest, AShardsUnixSocketGetsIt) {
  FakeJob::Options job_options = FarShard();
  job_options.local_sockets = "agg-token-test-" + std::to_string(getpid());
  FakeJob near(TwoTensors(), job_options);
  ClientOptions options = OptionsFor(near, TwoTensors());
  options.token_file = FileWith("socket", "socket-0123456789");
  const auto joined = AggClient::Connect(options);
  ASSERT_TRUE(joined.ok()) << joined.status();
  Tensors values = Values(TwoTensors(), 1);
  EXPECT_TRUE((*joined)->SeedOrPull(Write(&values)).ok());
}

class TlsEnvironmentTest : public testing::Test {
 protected:
  TlsEnvironmentTest() {
    setenv("AGG_TLS_CA", "ca", 1);
    setenv("AGG_TLS_CERTIFICATE", "certificate", 1);
    setenv("AGG_TLS_KEY", "key", 1);
    setenv("AGG_TLS_SERVER_NAME", "name", 1);
  }
  ~TlsEnvironmentTest() override {
    for (const char* name : {"AGG_TLS_CA", "AGG_TLS_CERTIFICATE", "AGG_TLS_KEY",
                             "AGG_TLS_SERVER_NAME"}) {
      unsetenv(name);
    }
  }
};

TEST_F(TlsEnvironmentTest, FillsWhatIsEmpty) {
  const TlsOptions tls = WithTlsEnvironment({});
  EXPECT_EQ(tls.ca, "ca");
  EXPECT_EQ(tls.certificate, "certificate");
  EXPECT_EQ(tls.key, "key");
  EXPECT_EQ(tls.server_name, "name");
}

TEST_F(TlsEnvironmentTest, WhatIsSaidWins) {
  TlsOptions said;
  said.ca = "a";
  said.server_name = "n";
  const TlsOptions tls = WithTlsEnvironment(said);
  EXPECT_EQ(tls.ca, "a");
  EXPECT_EQ(tls.certificate, "certificate");
  EXPECT_EQ(tls.server_name, "n");
}

// The environment's key is not that of another certificate.
TEST_F(TlsEnvironmentTest, ACertificateAndItsKeyComeTogether) {
  TlsOptions said;
  said.certificate = "c";
  EXPECT_EQ(WithTlsEnvironment(said).key, "");
  EXPECT_EQ(WithTlsEnvironment(said).certificate, "c");
}

TEST_F(TlsEnvironmentTest, NothingThereIsNothing) {
  unsetenv("AGG_TLS_CA");
  setenv("AGG_TLS_CERTIFICATE", "", 1);
  unsetenv("AGG_TLS_KEY");
  EXPECT_FALSE(WithTlsEnvironment({}).any());
}

}  // namespace
}  // namespace agg
