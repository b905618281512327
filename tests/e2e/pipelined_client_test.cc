// Pipelined rounds (P43) of AggClient through real servers and sockets: the
// bytes of an atomic job, while the row is on its way.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/wave_plan.h"
#include "server/config/options.h"
#include "tests/e2e/loopback_job.h"
#include "tests/e2e/raw_worker.h"
#include "tests/server/rpc/tcp_relay.h"

namespace agg {
namespace {

constexpr int kWorkers = 2;
constexpr int kRounds = 3;

// A tensor of each shard, and a small one: two waves and a rest.
Manifest ThreeWaves() {
  return ShapedManifest({{kMinWaveElements}, {kMinWaveElements}, {3}});
}

// One frame to each shard; "t1" may be missing.
Manifest SmallTensors() {
  Manifest manifest = ShapedManifest({{30}, {7}, {2, 5}, {1}});
  manifest.tensors[1].optional = true;
  return manifest;
}

HostTensors Gradient(const Manifest& manifest, int round, int rank) {
  return MakeTensors(manifest,
                     1000 + static_cast<uint64_t>(round * kWorkers + rank));
}

// Every other row is without the tensors that may be missing.
std::vector<TensorView> RowOf(const HostTensors& gradient,
                              const Manifest& manifest, int number) {
  std::vector<TensorView> views = Views(gradient);
  for (size_t t = 0; t < views.size(); ++t) {
    const bool missing = manifest.tensors[t].optional && number % 2 == 1;
    if (missing) views[t] = TensorView();
  }
  return views;
}

std::string Config(int workers, const std::string& publish,
                   const std::string& more = "") {
  return absl::StrCat(
      "workers: ", workers, " publish: \"", publish,
      "\" combination { rule: \"adasum\" } learning_rate { rate: 0.5 }"
      " replication: \"none\" ",
      more);
}

// As from another host: over TCP, at `address` if it is not the job's.
std::unique_ptr<AggClient> Connect(const LoopbackJob& job, int rank,
                                   const Manifest& manifest,
                                   const std::string& address = "") {
  ClientOptions options = job.Options(rank, manifest);
  options.recovery_window = absl::Minutes(1);
  options.local_sockets = false;
  if (!address.empty()) options.coordinator = address;
  auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

// What each worker has after some rounds of PushPull; what is asked for with
// calls of their own is on the page of `metrics_port`.
HostTensors TrainOverTcp(const LoopbackJob& job, const Manifest& manifest) {
  std::vector<HostTensors> parameters(kWorkers, MakeTensors(manifest, 7));
  std::vector<std::unique_ptr<AggClient>> clients(kWorkers);
  RunWorkers(kWorkers, [&](int rank) {
    clients[rank] = Connect(job, rank, manifest);
    ASSERT_NE(clients[rank], nullptr);
    HostTensors* const mine = &parameters[rank];
    const absl::Status status = clients[rank]->SeedOrPull(MutableViews(mine));
    ASSERT_TRUE(status.ok()) << status;
    for (int round = 0; round < kRounds; ++round) {
      const HostTensors gradient = Gradient(manifest, round, rank);
      const auto outcome = clients[rank]->PushPull(
          RowOf(gradient, manifest, round + rank), {}, MutableViews(mine));
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(outcome->included);
      EXPECT_EQ(outcome->version, static_cast<uint64_t>(round) + 1);
      EXPECT_EQ(outcome->message, "");
    }
  });
  EXPECT_EQ(parameters[0], parameters[1]);
  return parameters[0];
}

struct Case {
  int num_shards;
  const char* push_dtype;
  bool large;
};

class PipelinedClientTest : public ::testing::TestWithParam<Case> {};

TEST_P(PipelinedClientTest, GivesTheBytesOfAnAtomicJobInOneTrip) {
  const int num_shards = GetParam().num_shards;
  const Manifest manifest = GetParam().large ? ThreeWaves() : SmallTensors();
  const std::string dtype = GetParam().push_dtype;
  std::string dtypes = absl::StrCat("push_dtype: \"", dtype, "\"");
  if (dtype == "bf16") dtypes += " pull_dtype: \"bf16\"";
  const LoopbackJob atomic(num_shards, Config(kWorkers, "atomic", dtypes));
  const int metrics_port = FreePorts(1).front();
  const LoopbackJob pipelined(
      num_shards, Config(kWorkers, "pipelined", dtypes), FactoryBackends(),
      [&, next = num_shards](ServerOptions* options) mutable {
        if (--next == 0) options->metrics.port = metrics_port;
      });
  const HostTensors expected = TrainOverTcp(atomic, manifest);
  EXPECT_EQ(TrainOverTcp(pipelined, manifest), expected);
  EXPECT_EQ(EndedCalls(metrics_port, "Coordinator/Commit"), 1);  // the seed's
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, PipelinedClientTest,
    ::testing::Values(Case{1, "f32", true}, Case{1, "bf16", true},
                      Case{2, "f16", true}, Case{2, "int8", true},
                      Case{3, "f32", true}, Case{1, "f32", false},
                      Case{2, "int8", false}));

HostTensors Constant(float value) {
  HostTensors tensors = MakeTensors(ThreeWaves(), 0);
  for (std::vector<float>& values : tensors) {
    for (float& each : values) each = value;
  }
  return tensors;
}

// A round of a client and of a worker that sends its row of ones in two pieces.
class TwoPiecesTest : public ::testing::Test {
 protected:
  // What an atomic round makes of it.
  void SetUp() override {
    const LoopbackJob atomic(1, Config(kWorkers, "atomic"));
    std::vector<HostTensors> parameters(kWorkers, Constant(1));
    std::vector<std::unique_ptr<AggClient>> clients(kWorkers);
    RunWorkers(kWorkers, [&](int rank) {
      clients[rank] = Connect(atomic, rank, ThreeWaves());
      const HostTensors gradient = rank == 0 ? gradient_ : Constant(1);
      EXPECT_TRUE(
          clients[rank]->SeedOrPull(MutableViews(&parameters[rank])).ok());
      EXPECT_TRUE(
          clients[rank]
              ->PushPull(Views(gradient), {}, MutableViews(&parameters[rank]))
              .ok());
    });
    expected_ = parameters[0];
    client_ = Connect(job_, 0, ThreeWaves(), relay_.address());
    ASSERT_NE(client_, nullptr);
    ASSERT_TRUE(client_->SeedOrPull(MutableViews(&parameters_)).ok());
  }

  // The other row's slices [begin, end).
  void Send(size_t begin, size_t end) {
    const auto frames = other_.SplitBySlice(other_.Frame(0, 0));
    for (size_t i = begin; i < end; ++i) other_.Send(0, frames[i]);
  }
  RoundOperation BeginRound() {
    RoundOperation round =
        client_->StartRound(Views(gradient_), {}, MutableViews(&parameters_));
    Send(0, 1);
    const absl::Status first =
        round.WaitForTensor("t0", absl::Now() + absl::Minutes(1));
    EXPECT_TRUE(first.ok()) << first;
    EXPECT_EQ(parameters_[0], expected_[0]);
    EXPECT_FALSE(round.Done());
    return round;
  }
  void CheckEnd(RoundOperation* round) {
    Send(1, 3);
    const auto outcome = round->Outcome();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
    EXPECT_EQ(outcome->kind, RoundOutcome::Kind::kApplied);
    EXPECT_EQ(outcome->version, 1u);
    EXPECT_EQ(parameters_, expected_);
  }

  const LoopbackJob job_{1, Config(kWorkers, "pipelined")};
  TcpRelay relay_{job_.coordinator()};
  RawWorker other_{job_.coordinator(), 1, ThreeWaves()};  // seeds ones
  std::unique_ptr<AggClient> client_;
  const HostTensors gradient_ = Gradient(ThreeWaves(), 0, 0);
  HostTensors parameters_ = Constant(3), expected_;
};

TEST_F(TwoPiecesTest, ATensorComesBeforeTheRowsAreComplete) {
  RoundOperation round = BeginRound();
  CheckEnd(&round);
}

TEST_F(TwoPiecesTest, ARoundGoesOnWhenItsConnectionBreaksInTheMiddle) {
  RoundOperation round = BeginRound();
  relay_.Cut();
  CheckEnd(&round);
}

}  // namespace
}  // namespace agg
