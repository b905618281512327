// aggctl's commands against a job with real servers and clients.
#include <sys/stat.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/loopback_job.h"
#include "worker_client/npz/npz.h"
#include "worker_client/tools/aggctl_commands.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

constexpr char kConfig[] = "workers: 2\nlearning_rate { rate: 0.1 }\n";

struct Answer {
  AggctlResult result;
  std::string output;
};

Answer Aggctl(const std::string& address,
              const std::vector<std::string>& arguments) {
  const absl::StatusOr<AggctlFlags> flags =
      ParseAggctlFlags(arguments, address.c_str());
  EXPECT_TRUE(flags.ok()) << flags.status();
  Answer run;
  const AggctlOutput output = {[&run](const std::string& text) {
                                 run.output += text;
                                 return true;
                               },
                               /*terminal=*/false};
  run.result = RunAggctl(*flags, output);
  return run;
}

class AggctlTest : public testing::Test {
 protected:
  AggctlTest()
      : job_(2, kConfig), manifest_(ShapedManifest({{3, 700001}, {17}, {}})) {}

  // Two clients that hold version 0.
  void Begin() {
    clients_.resize(2);
    RunWorkers(2, [this](int rank) {
      clients_[rank] = job_.Connect(rank, manifest_);
      HostTensors parameters = MakeTensors(manifest_, 7);
      const absl::Status status =
          clients_[rank]->SeedOrPull(MutableViews(&parameters));
      EXPECT_TRUE(status.ok()) << status;
    });
  }

  absl::StatusOr<RoundOutcome> PushPull(int rank) {
    HostTensors parameters = MakeTensors(manifest_, 7);
    return clients_[rank]->PushPull(Views(MakeTensors(manifest_, 20 + rank)),
                                    {}, MutableViews(&parameters));
  }

  void RunRound() {
    RunWorkers(2, [this](int rank) {
      const absl::StatusOr<RoundOutcome> outcome = PushPull(rank);
      EXPECT_TRUE(outcome.ok()) << outcome.status();
    });
  }

  Answer Aggctl(const std::vector<std::string>& arguments) {
    return agg::Aggctl(job_.coordinator(), arguments);
  }

  LoopbackJob job_;
  const Manifest manifest_;
  std::vector<std::unique_ptr<AggClient>> clients_;
};

TEST_F(AggctlTest, AStalledWorkerIsNamedAndEvicted) {
  Begin();
  auto waiting = std::async(std::launch::async, [this] { return PushPull(0); });
  std::string status;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!absl::StrContains(status, "waiting") && absl::Now() < deadline) {
    const Answer run = Aggctl({"status"});
    EXPECT_TRUE(run.result.ok()) << run.result.message;
    status = run.output;
  }
  // Not ASSERT: `waiting` ends when the other worker is evicted, as below.
  EXPECT_THAT(status, AllOf(HasSubstr("waiting   for rank 1 ("),
                            HasSubstr("\n   0  committed"),
                            HasSubstr("\n   1  waited for"),
                            HasSubstr("workers   2 of 2 expected")));
  const Answer evict = Aggctl({"evict", "--rank=1", "--reason=stalled"});
  EXPECT_THAT(evict.output, HasSubstr("had not committed"));
  const absl::StatusOr<RoundOutcome> outcome = waiting.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->ranks, std::vector<int>{0});
  const absl::Status evicted = PushPull(1).status();
  EXPECT_TRUE(absl::IsAborted(evicted)) << evicted;
  EXPECT_THAT(std::string(evicted.message()), HasSubstr("evicted: stalled"));
  const Answer again = Aggctl({"evict", "--rank=1"});
  EXPECT_EQ(again.result.code, kAggctlRefused);
  EXPECT_THAT(again.result.message, HasSubstr("NOT_FOUND"));
}

// With the first renewal after its memory is mapped.
TEST(AggctlTransportTest, ShowsHowEachWorkerReachesTheShards) {
  const LoopbackJob job(2,
                        "workers: 2\nlease_seconds: 3\n"
                        "learning_rate { rate: 0.1 }\n");
  const Manifest manifest = ShapedManifest({{3, 700001}, {17}});
  const auto shares = job.Connect(0, manifest);
  ClientOptions options = job.Options(1, manifest);
  options.local_sockets = false;
  const auto sends = AggClient::Connect(options);
  ASSERT_TRUE(sends.ok()) << sends.status();
  std::string status;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!absl::StrContains(status, "  shm  ") ||
         !absl::StrContains(status, "  tcp  ")) {
    const Answer run = Aggctl(job.coordinator(), {"status"});
    ASSERT_TRUE(run.result.ok()) << run.result.message;
    status = run.output;
    ASSERT_THAT(status, HasSubstr("workers   2 of 2 expected"));
    ASSERT_LT(absl::Now(), deadline) << status;
  }
  EXPECT_THAT(status, AllOf(HasSubstr("  BEHIND  TRANSPORT  CLIENT\n"),
                            HasSubstr("0ms  shm        "),
                            HasSubstr("0ms  tcp        ")));
}

TEST_F(AggctlTest, TheRuleChangesWithTheNextRound) {
  Begin();
  RunRound();
  const Answer set = Aggctl({"set-rule", "adasum"});
  ASSERT_TRUE(set.result.ok()) << set.result.message;
  EXPECT_THAT(set.output, HasSubstr("from round 2 on: rule adasum"));
  EXPECT_THAT(Aggctl({"status"}).output,
              AllOf(HasSubstr("combined  rule mean"),
                    HasSubstr("from round 2 on: rule adasum")));
  EXPECT_EQ(job_.Observe()->job().rule, "mean");
  RunRound();
  EXPECT_EQ(job_.Observe()->job().rule, "adasum");
  RunRound();
  const Answer rounds = Aggctl({"rounds", "--output=json"});
  const std::vector<std::string> lines =
      absl::StrSplit(rounds.output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(lines[round], HasSubstr(absl::StrCat("\"round\":\"", round)));
    EXPECT_THAT(lines[round],
                HasSubstr(absl::StrCat("\"rule\":\"",
                                       round < 2 ? "mean" : "adasum", "\"")));
  }
  EXPECT_THAT(
      Aggctl({"status"}).output,
      AllOf(HasSubstr("combined  rule adasum"), Not(HasSubstr("from round"))));
  const Answer bad = Aggctl({"set-rule", "median"});
  EXPECT_EQ(bad.result.code, kAggctlRefused);
  EXPECT_THAT(bad.result.message,
              HasSubstr("INVALID_ARGUMENT: rule is \"median\"; allowed: "));
}

TEST_F(AggctlTest, FollowGoesOnWhereItWas) {
  Begin();
  for (int round = 0; round < 3; ++round) RunRound();
  const Answer some = Aggctl(
      {"rounds", "--last=2", "--follow", "--count=3", "--interval=0.01"});
  ASSERT_TRUE(some.result.ok()) << some.result.message;
  const std::vector<std::string> lines =
      absl::StrSplit(some.output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u) << some.output;  // a header and two rounds, once
  EXPECT_THAT(lines[1], HasSubstr("     1  "));
  EXPECT_THAT(lines[2], HasSubstr("     2  "));
  const Answer top = Aggctl({"top", "--count=1"});
  EXPECT_THAT(top.output,
              AllOf(HasSubstr("job       default: open, round 3"),
                    HasSubstr("rounds per second"), HasSubstr("RANK  STATE"),
                    HasSubstr(" ROUND  ENDED")));
}

TEST_F(AggctlTest, TensorsAndTheirPlaces) {
  const Answer early = Aggctl({"tensors"});
  EXPECT_EQ(early.result.code, kAggctlRefused);
  Begin();
  RunRound();
  const Answer tensors = Aggctl({"tensors"});
  EXPECT_THAT(tensors.output,
              AllOf(HasSubstr("t0      [3,700001]     2100003  -           3  "
                              "0,1"),
                    HasSubstr("3 tensors, 2100021 parameters")));
  EXPECT_THAT(Aggctl({"workers"}).output, HasSubstr("\n   1  computing"));
}

TEST_F(AggctlTest, PullWritesTheNewestVersion) {
  Begin();
  RunRound();
  const std::string file = testing::TempDir() + "/aggctl.npz";
  const Answer pull = Aggctl({"pull", file});
  ASSERT_TRUE(pull.result.ok()) << pull.result.message;
  EXPECT_THAT(pull.output, HasSubstr("version 1: 3 tensors, 2100021"));
  const auto written = ReadNpz(file);
  ASSERT_TRUE(written.ok());
  const HostTensors parameters = job_.Parameters(manifest_);
  for (size_t t = 0; t < parameters.size(); ++t) {
    EXPECT_EQ((*written)[t].values, parameters[t]);
  }
  EXPECT_EQ(Aggctl({"pull", file, "--version=9"}).result.code, kAggctlRefused);
  EXPECT_EQ(Aggctl({"pull", "/no/such/folder/x"}).result.code, kAggctlLocal);
}

TEST_F(AggctlTest, OtherShardsSendToTheCoordinator) {
  for (const char* command : {"status", "tensors", "rounds", "drain"}) {
    const Answer run = agg::Aggctl(job_.address(1), {command});
    EXPECT_EQ(run.result.code, kAggctlRefused) << command;
    EXPECT_THAT(run.result.message, HasSubstr("is shard 0")) << command;
  }
  const Answer version = agg::Aggctl(job_.address(1), {"version"});
  EXPECT_THAT(version.output, HasSubstr("shard 1 of 2"));
  // This process is not an agg_server, and is not ended.
  EXPECT_THAT(Aggctl({"drain"}).result.message, HasSubstr("nothing to end"));
}

// Asked through any shard, and with shard 0 gone.
TEST_F(AggctlTest, DoctorSaysWhatIsWrongAndEndsSo) {
  const Answer early = Aggctl({"doctor", "--timeout=60"});
  EXPECT_EQ(early.result.code, kAggctlUnwell);
  EXPECT_THAT(early.output,
              HasSubstr("0 of 2 workers are in; nobody is rank 0, 1"));
  Begin();
  for (int asked = 0; asked < 2; ++asked) {
    Answer healthy;
    // The second copies may be on their way.
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    do {
      healthy = agg::Aggctl(job_.address(asked), {"doctor", "--timeout=60"});
    } while (!healthy.result.ok() && absl::Now() < deadline);
    EXPECT_TRUE(healthy.result.ok()) << healthy.output;
    EXPECT_THAT(healthy.output,
                AllOf(HasSubstr("nothing is wrong (2 shards asked at "),
                      HasSubstr("\n    1  127.0.0.1:")));
  }
  job_.Stop(0);
  const Answer sick = agg::Aggctl(job_.address(1), {"doctor"});
  EXPECT_EQ(sick.result.code, kAggctlUnwell);
  EXPECT_EQ(sick.result.message.find('\n'), std::string::npos);
  EXPECT_THAT(sick.output,
              AllOf(HasSubstr("error    shard 0 ("),
                    HasSubstr("does not answer: cannot reach "),
                    HasSubstr("error    shard 0 gives no status: "),
                    HasSubstr("AggShardDown (critical)")));
  EXPECT_EQ(agg::Aggctl(job_.address(0), {"doctor"}).result.code,
            kAggctlUnreachable);
  const Answer json = agg::Aggctl(job_.address(1), {"doctor", "--output=json"});
  EXPECT_THAT(json.output, HasSubstr("\"alert\":\"AggShardDown\""));
  job_.StartAgain(0);  // so that the clients can leave
}

TEST_F(AggctlTest, LogLevelOfTheProcess) {
  const Answer first = Aggctl({"loglevel", "error"});
  ASSERT_TRUE(first.result.ok()) << first.result.message;
  EXPECT_THAT(first.output, MatchesRegex("log level error, was .*\n"));
  EXPECT_EQ(Aggctl({"loglevel", "info"}).output, "log level info, was error\n");
  EXPECT_THAT(Aggctl({"loglevel", "loud"}).result.message,
              HasSubstr("allowed: debug, info, warning, error"));
}

TEST_F(AggctlTest, ACheckpointNeedsAPath) {
  Begin();
  const Answer run = Aggctl({"checkpoint"});
  EXPECT_EQ(run.result.code, kAggctlRefused);
  EXPECT_THAT(run.result.message, HasSubstr("checkpoint.path is not"));
}

TEST(AggctlCheckpointTest, IsTakenWhenSomebodyAsks) {
  const std::string folder = testing::TempDir() + "/aggctl_checkpoints";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const LoopbackJob job(
      2,
      absl::StrCat("workers: 1\nlearning_rate { rate: 0.1 }\n",
                   "checkpoint { path: \"", folder, "\" every_seconds: 0 }\n"));
  const Manifest manifest = ShapedManifest({{3, 700001}, {17}});
  EXPECT_THAT(agg::Aggctl(job.coordinator(), {"status"}).output,
              HasSubstr("saved     nothing yet\n"));
  const auto client = job.Connect(0, manifest);
  EXPECT_THAT(agg::Aggctl(job.coordinator(), {"checkpoint"}).result.message,
              HasSubstr("no version is published yet"));
  HostTensors parameters = MakeTensors(manifest, 7);
  const absl::Status seeded = client->SeedOrPull(MutableViews(&parameters));
  ASSERT_TRUE(seeded.ok()) << seeded;
  const Answer run = agg::Aggctl(job.coordinator(), {"checkpoint"});
  ASSERT_TRUE(run.result.ok()) << run.result.message;
  EXPECT_THAT(run.output,
              MatchesRegex("version 0 is saved: 840[0-9]+ bytes, in the folder "
                           "[0-9]+-0\n"));
  EXPECT_THAT(agg::Aggctl(job.coordinator(), {"status"}).output,
              HasSubstr("saved     version 0, "));
}

TEST(AggctlFailureTest, NobodyThere) {
  std::string address;
  {
    const LoopbackJob job(1, kConfig);
    address = job.coordinator();
  }
  for (const char* command : {"status", "rounds", "version"}) {
    const Answer run = agg::Aggctl(address, {command});
    EXPECT_EQ(run.result.code, kAggctlUnreachable) << command;
    EXPECT_THAT(run.result.message, HasSubstr("cannot reach " + address));
  }
}

// What Kubernetes' probes ask where the port has TLS.
TEST_F(AggctlTest, HealthIsAnExitCode) {
  Begin();
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  Answer answer = Aggctl({"health"});
  while (!answer.result.ok() && absl::Now() < deadline) {
    answer = Aggctl({"health"});
  }
  EXPECT_TRUE(answer.result.ok()) << answer.result.message;
  EXPECT_EQ(answer.output, "SERVING\n");
  EXPECT_TRUE(Aggctl({"health", "agg.v1.Live"}).result.ok());
  EXPECT_EQ(Aggctl({"health", "no.such.Service"}).result.code, kAggctlRefused);
  EXPECT_EQ(agg::Aggctl("127.0.0.1:1", {"health"}).result.code,
            kAggctlUnreachable);
}

}  // namespace
}  // namespace agg
