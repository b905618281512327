// Clients with tokens against real servers with identities (P45), over TCP,
// Unix sockets and shared memory.
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/admin.grpc.pb.h"
#include "proto/agg.grpc.pb.h"
#include "proto/protocol_version.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/channel.h"
#include "worker_client/shard_regions.h"
#include "worker_client/tools/admin_client.h"

namespace agg {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kAlice[] = "alice-token-0123456";
constexpr char kBob[] = "bob-token-012345678";
constexpr char kRoot[] = "root-token-01234567";

std::string FileWith(const std::string& name, const std::string& token) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  const std::string part = path + ".part";
  std::ofstream(part) << token << "\n";
  EXPECT_EQ(rename(part.c_str(), path.c_str()), 0);
  return path;
}

std::string Config() {
  const auto identity = [](const char* name, const char* token,
                           const char* role) {
    return absl::StrCat("identities { name: \"", name, "\" token_file: \"",
                        FileWith(name, token), "\" roles: \"", role, "\" } ");
  };
  return absl::StrCat("workers: 1 learning_rate { rate: 0.1 } security { ",
                      identity("alice", kAlice, "worker"),
                      identity("bob", kBob, "worker"),
                      identity("root", kRoot, "admin"), "shard_token_file: \"",
                      FileWith("shards", "shard-token-0123456"), "\" }");
}

Manifest SmallManifest() { return ShapedManifest({{20, 3}, {7}, {5}}); }

absl::StatusOr<std::unique_ptr<AggClient>> ConnectAs(const LoopbackJob& job,
                                                     const std::string& token,
                                                     int rank = 0) {
  ClientOptions options = job.Options(rank, SmallManifest());
  if (!token.empty()) {
    options.token_file = FileWith(absl::StrCat("client-", token), token);
  }
  return AggClient::Connect(options);
}

void ExpectRounds(AggClient* client, int num_rounds) {
  const Manifest manifest = SmallManifest();
  HostTensors parameters = MakeTensors(manifest, 7);
  const absl::Status seeded = client->SeedOrPull(MutableViews(&parameters));
  ASSERT_TRUE(seeded.ok()) << seeded;
  for (int round = 0; round < num_rounds; ++round) {
    const absl::StatusOr<RoundOutcome> outcome = client->PushPull(
        Views(MakeTensors(manifest, 8)), {}, MutableViews(&parameters));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
  }
}

TEST(AccessTest, AClientWithAnIdentityTrains) {
  const LoopbackJob job(2, Config());
  auto client = ConnectAs(job, kAlice);
  ASSERT_TRUE(client.ok()) << client.status();
  ExpectRounds(client->get(), 5);
  // The memory is given to it, since it says who it is there, too.
  EXPECT_THAT((*client)->job().transports, Each("shm"));
}

TEST(AccessTest, WhoIsNobodyGetsNoFurtherThanJoin) {
  const LoopbackJob job(2, Config());
  const auto nobody = ConnectAs(job, "");
  EXPECT_TRUE(absl::IsUnauthenticated(nobody.status())) << nobody.status();
  EXPECT_THAT(nobody.status().message(), HasSubstr("AGG_TOKEN_FILE"));
  const auto wrong = ConnectAs(job, "wrong-token-0123456");
  EXPECT_TRUE(absl::IsUnauthenticated(wrong.status())) << wrong.status();
  const auto operator_ = ConnectAs(job, kRoot);
  EXPECT_TRUE(absl::IsPermissionDenied(operator_.status()));
  EXPECT_THAT(operator_.status().message(), HasSubstr("the role worker"));
}

TEST(AccessTest, ARankBelongsToItsIdentity) {
  const LoopbackJob job(2, Config());
  auto alice = ConnectAs(job, kAlice);
  ASSERT_TRUE(alice.ok()) << alice.status();
  const auto bob = ConnectAs(job, kBob);
  EXPECT_TRUE(absl::IsPermissionDenied(bob.status())) << bob.status();
  ExpectRounds(alice->get(), 2);
}

v1::JoinReply ObserveAs(const LoopbackJob& job, const std::string& token) {
  const auto stub = v1::Coordinator::NewStub(grpc::CreateChannel(
      job.coordinator(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::JoinReply reply;
  const grpc::Status status = stub->Observe(&context, request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return reply;
}

TEST(AccessTest, SharedMemoryIsItsSessionsAlone) {
  const LoopbackJob job(1, Config());
  auto alice = ConnectAs(job, kAlice);
  ASSERT_TRUE(alice.ok()) << alice.status();
  ExpectRounds(alice->get(), 1);
  const v1::JoinReply seen = ObserveAs(job, kBob);
  ASSERT_EQ(seen.region_sockets_size(), 1);
  v1::RegionRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_session((*alice)->session());
  request.set_epoch(seen.epoch());
  request.set_life(seen.shard_lives(0));
  const auto ask = [&](const std::string& token) {
    request.set_token(token);
    return AskForRegions(seen.region_sockets(0), request).status();
  };
  EXPECT_TRUE(absl::IsUnauthenticated(ask("")));
  EXPECT_TRUE(absl::IsPermissionDenied(ask(kBob)));
  // It could write what Alice has pushed, which no operator may.
  EXPECT_TRUE(absl::IsPermissionDenied(ask(kRoot))) << ask(kRoot);
  EXPECT_TRUE(ask(kAlice).ok()) << ask(kAlice);
  // Versions are anybody's who may pull.
  request.set_session(0);
  EXPECT_TRUE(ask(kBob).ok()) << ask(kBob);
  EXPECT_TRUE(ask(kRoot).ok()) << ask(kRoot);
}

TEST(AccessTest, ATokenDoesNotLeaveTheHost) {
  ClientOptions options;
  options.coordinator = "192.0.2.1:50051";
  options.manifest = SmallManifest();
  options.token_file = FileWith("stays", kAlice);
  const auto client = AggClient::Connect(options);
  EXPECT_TRUE(absl::IsInvalidArgument(client.status())) << client.status();
  EXPECT_THAT(client.status().message(), HasSubstr("clear text"));
  options.token_file = "/nowhere/token";
  EXPECT_THAT(AggClient::Connect(options).status().message(),
              HasSubstr("token_file is \"/nowhere/token\": "));
}

TEST(AccessTest, OperatorsSeeWhatWasDone) {
  const LoopbackJob job(2, Config());
  auto alice = ConnectAs(job, kAlice);
  ASSERT_TRUE(alice.ok()) << alice.status();
  EXPECT_FALSE(ConnectAs(job, kBob).ok());
  AdminClient admin(job.coordinator(), absl::Seconds(30), TlsOptions(),
                    FileWith("operator", kRoot));
  v1::ListAuditReply reply;
  const AggctlResult result =
      admin.Ask(&v1::Admin::Stub::ListAudit, v1::ListAuditRequest(), &reply);
  ASSERT_TRUE(result.ok()) << result.message;
  std::vector<std::pair<std::string, std::string>> events;
  for (const v1::AuditRecord& record : reply.records()) {
    events.emplace_back(record.action(), record.who());
  }
  EXPECT_THAT(events, Contains(Pair("join", "alice")));
  EXPECT_THAT(events, Contains(Pair("denial", "bob")));
  AdminClient worker(job.coordinator(), absl::Seconds(30), TlsOptions(),
                     FileWith("no_operator", kAlice));
  EXPECT_EQ(
      worker.Ask(&v1::Admin::Stub::ListAudit, v1::ListAuditRequest(), &reply)
          .code,
      kAggctlRefused);
}

// Who is not let in any more is out at once, streams and session included.
void ExpectEnded(const LoopbackJob& job, AggClient* client,
                 const std::function<void()>& take_away) {
  AdminClient admin(job.coordinator(), absl::Seconds(30), TlsOptions(),
                    FileWith("operator", kRoot));
  v1::StatusReply status;
  ASSERT_TRUE(admin.Status(&status).ok());
  ASSERT_EQ(status.workers_size(), 1);
  take_away();
  // A file is looked at each second, and a session outlives its streams for the
  // grace.
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  do {
    ASSERT_TRUE(admin.Status(&status).ok());
  } while (status.workers_size() > 0 && absl::Now() < deadline);
  EXPECT_EQ(status.workers_size(), 0);
  HostTensors parameters = MakeTensors(SmallManifest(), 7);
  EXPECT_FALSE(client
                   ->PushPull(Views(MakeTensors(SmallManifest(), 8)), {},
                              MutableViews(&parameters))
                   .ok());
}

TEST(AccessTest, ATokenThatIsTakenAwayEndsItsStreams) {
  const LoopbackJob job(2, Config());
  auto alice = ConnectAs(job, kAlice);
  ASSERT_TRUE(alice.ok()) << alice.status();
  ExpectRounds(alice->get(), 2);
  ExpectEnded(job, alice->get(),
              [] { FileWith("alice", "another-token-01234"); });
}

// The three steps of deploy/docs/security.md, while rows wait for each other:
// no call that was begun with the former token ends a worker.
TEST(AccessTest, ATokenIsReplacedWithoutAGap) {
  constexpr char kNew[] = "alice-token-number-2";
  const LoopbackJob job(
      2, absl::StrReplaceAll(Config(), {{"workers: 1", "workers: 2"}}));
  // No other test's: who reads a file looks each second, for all clients.
  ClientOptions options = job.Options(0, SmallManifest());
  options.token_file = FileWith("client-replaced", kAlice);
  options.recovery_window = absl::Minutes(1);
  auto alice = AggClient::Connect(options);
  auto bob = ConnectAs(job, kBob, 1);
  ASSERT_TRUE(alice.ok()) << alice.status();
  ASSERT_TRUE(bob.ok()) << bob.status();
  const Manifest manifest = SmallManifest();
  HostTensors hers = MakeTensors(manifest, 7);
  HostTensors his = MakeTensors(manifest, 7);
  const auto seeded = std::async(std::launch::async, [&] {
    return (*bob)->SeedOrPull(MutableViews(&his));
  });
  ASSERT_TRUE((*alice)->SeedOrPull(MutableViews(&hers)).ok());
  seeded.wait();

  auto waits = std::async(std::launch::async, [&] {
    return (*alice)->PushPull(Views(MakeTensors(manifest, 8)), {},
                              MutableViews(&hers));
  });
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  const v1::JoinReply seen = ObserveAs(job, kBob);
  const auto known = [&](int shard) {
    v1::RegionRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.set_epoch(seen.epoch());
    request.set_life(seen.shard_lives(shard));
    request.set_token(kNew);
    return AskForRegions(seen.region_sockets(shard), request).ok();
  };
  FileWith("alice", absl::StrCat(kAlice, "\n", kNew));
  while (!(known(0) && known(1)) && absl::Now() < deadline) {
  }
  FileWith("client-replaced", kNew);
  while (LocalToken(options.token_file) != kNew && absl::Now() < deadline) {
  }
  FileWith("alice", kNew);
  // Until what was begun with the former one has been ended.
  AdminClient admin(job.coordinator(), absl::Seconds(30), TlsOptions(),
                    FileWith("operator", kRoot));
  const auto ended = [&] {
    v1::ListAuditReply reply;
    EXPECT_TRUE(
        admin.Ask(&v1::Admin::Stub::ListAudit, v1::ListAuditRequest(), &reply)
            .ok());
    return std::any_of(reply.records().begin(), reply.records().end(),
                       [](const v1::AuditRecord& record) {
                         return record.action() == "denial" &&
                                record.who() == "alice";
                       });
  };
  while (!ended() && absl::Now() < deadline) {
  }
  EXPECT_TRUE(ended());
  const auto joined =
      (*bob)->PushPull(Views(MakeTensors(manifest, 9)), {}, MutableViews(&his));
  EXPECT_TRUE(joined.ok()) << joined.status();
  const auto waited = waits.get();
  ASSERT_TRUE(waited.ok()) << waited.status();
  EXPECT_TRUE(waited->included);
}

TEST(AccessTest, WhoIsOnTheDenyListIsOut) {
  const std::string denied = FileWith("denied", "# nobody yet");
  const LoopbackJob job(
      2,
      absl::StrReplaceAll(
          Config(), {{"security { ", absl::StrCat("security { denied_file: \"",
                                                  denied, "\" ")}}));
  auto alice = ConnectAs(job, kAlice);
  ASSERT_TRUE(alice.ok()) << alice.status();
  ExpectRounds(alice->get(), 2);
  ExpectEnded(job, alice->get(), [] { FileWith("denied", "identity alice"); });
  const auto again = ConnectAs(job, kAlice);
  EXPECT_TRUE(absl::IsUnauthenticated(again.status())) << again.status();
  EXPECT_THAT(again.status().message(), HasSubstr("deny list"));
  EXPECT_TRUE(ConnectAs(job, kBob).ok());
}

TEST(AccessTest, JoinsThatAreRefusedForWhatTheyBringAreAudited) {
  const LoopbackJob job(2, Config());
  auto alice = ConnectAs(job, kAlice);
  ASSERT_TRUE(alice.ok()) << alice.status();
  ExpectRounds(alice->get(), 1);
  ClientOptions other = job.Options(0, ShapedManifest({{4}}));
  other.token_file = FileWith("client-other", kAlice);
  const auto refused = AggClient::Connect(other);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  AdminClient admin(job.coordinator(), absl::Seconds(30), TlsOptions(),
                    FileWith("operator", kRoot));
  v1::SetLogLevelRequest loud;
  loud.set_level("loud");
  v1::SetLogLevelReply level;
  EXPECT_FALSE(admin.Ask(&v1::Admin::Stub::SetLogLevel, loud, &level).ok());
  v1::ListAuditReply reply;
  ASSERT_TRUE(
      admin.Ask(&v1::Admin::Stub::ListAudit, v1::ListAuditRequest(), &reply)
          .ok());
  std::vector<std::string> denials;
  std::vector<std::string> levels;
  for (const v1::AuditRecord& record : reply.records()) {
    if (record.action() == "denial") {
      denials.push_back(absl::StrCat(record.who(), " rank ", record.rank(), " ",
                                     record.detail(), ": ", record.outcome()));
    }
    if (record.action() == "log_level") levels.push_back(record.outcome());
  }
  EXPECT_THAT(denials,
              Contains(HasSubstr("alice rank 0 agg.v1.Coordinator/Join: "
                                 "INVALID_ARGUMENT: manifest differs from the "
                                 "job's at tensor 0")));
  EXPECT_THAT(levels, Contains(HasSubstr("level is \"loud\"")));
}

}  // namespace
}  // namespace agg
