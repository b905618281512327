// Rounds of one trip (P41) of AggClient through real servers: the same bits as
// ordinary calls, and fewer calls.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/options.h"
#include "tests/e2e/loopback_job.h"

namespace agg {
namespace {

Manifest SmallTensors() { return ShapedManifest({{30}, {7}, {2, 5}, {1}}); }

std::string Config(int num_workers, const std::string& more = "") {
  return absl::StrCat("workers: ", num_workers,
                      " combination { rule: \"adasum\" } optimizer { kind: "
                      "\"adam\" } learning_rate { rate: 0.01 } ",
                      more);
}

class Worker {
 public:
  Worker(const LoopbackJob& job, int rank)
      : client_(job.Connect(rank, SmallTensors())),
        gradient_(MakeTensors(SmallTensors(), 10 + rank)) {
    parameters_ = MakeTensors(SmallTensors(), 7);
  }
  void Seed() {
    EXPECT_TRUE(client_->SeedOrPull(MutableViews(&parameters_)).ok());
  }
  RoundOutcome PushPull() {
    const auto outcome =
        client_->PushPull(Views(gradient_), {}, MutableViews(&parameters_));
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.value_or(RoundOutcome());
  }
  void PushAndPull() {
    EXPECT_TRUE(client_->Push(Views(gradient_)).ok());
    const auto outcome = client_->Commit({});
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(
        client_->Pull(client_->version() + 1, MutableViews(&parameters_)).ok());
  }
  const HostTensors& parameters() const { return parameters_; }
  const AggClient& client() const { return *client_; }

 private:
  std::unique_ptr<AggClient> client_;
  const HostTensors gradient_;
  HostTensors parameters_;
};

// The parameters after some rounds of two workers, and the calls they took.
HostTensors Train(int num_shards, bool in_one_trip, double* commits) {
  const int metrics_port = FreePorts(1).front();
  const LoopbackJob job(num_shards, Config(2), FactoryBackends(),
                        [&, next = num_shards](ServerOptions* options) mutable {
                          if (--next == 0) options->metrics.port = metrics_port;
                        });
  Worker first(job, 0), second(job, 1);
  first.Seed();
  second.Seed();
  const auto rounds = [&](Worker* worker) {
    for (int round = 0; round < 5; ++round) {
      if (in_one_trip) {
        EXPECT_TRUE(worker->PushPull().included);
      } else {
        worker->PushAndPull();
      }
    }
  };
  std::thread other([&] { rounds(&second); });
  rounds(&first);
  other.join();
  EXPECT_EQ(first.parameters(), second.parameters());
  *commits = EndedCalls(metrics_port, "Coordinator/Commit");
  return first.parameters();
}

class ClientTripTest : public ::testing::TestWithParam<int> {};

TEST_P(ClientTripTest, GivesTheBitsOfOrdinaryCallsWithoutThem) {
  double trips = 0, ordinary = 0;
  const HostTensors expected = Train(GetParam(), false, &ordinary);
  EXPECT_EQ(Train(GetParam(), true, &trips), expected);
  EXPECT_EQ(ordinary, 1 + 2 * 5);  // the seed's is the first
  EXPECT_EQ(trips, 1);
}

TEST_P(ClientTripTest, AWorkerThatIsLateHearsSoAndGetsTheVersion) {
  const LoopbackJob job(GetParam(), Config(2, "quorum: 1"));
  Worker fast(job, 0), slow(job, 1);
  fast.Seed();
  slow.Seed();
  EXPECT_TRUE(fast.PushPull().included);
  const RoundOutcome outcome = slow.PushPull();
  EXPECT_FALSE(outcome.included);
  EXPECT_EQ(outcome.round, 0u);
  EXPECT_EQ(slow.client().version(), 1u);
  EXPECT_EQ(slow.parameters(), fast.parameters());
  EXPECT_TRUE(slow.PushPull().included);
}

INSTANTIATE_TEST_SUITE_P(Shards, ClientTripTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace agg
