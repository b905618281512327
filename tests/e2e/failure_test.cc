// What workers learn when something goes wrong, through real servers.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/loopback_job.h"

namespace agg {
namespace {

using testing::HasSubstr;

const char kConfig[] =
    "combination { rule: \"adasum\" } learning_rate { rate: 0.1 }";

struct Worker {
  Worker(const LoopbackJob& job, int rank, const Manifest& manifest)
      : manifest(manifest),
        parameters(MakeTensors(manifest, 7)),
        client(job.Connect(rank, manifest)) {}
  void SeedOrPull() {
    const absl::Status status = client->SeedOrPull(MutableViews(&parameters));
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::StatusOr<RoundOutcome> Step(uint64_t stream) {
    const HostTensors gradient = MakeTensors(manifest, stream);
    return client->PushPull(Views(gradient), {}, MutableViews(&parameters));
  }

  Manifest manifest;
  HostTensors parameters;
  std::unique_ptr<AggClient> client;
};

TEST(Failure, ALostShardIsNamedToAWorkerThatWaits) {
  const Manifest manifest = ShapedManifest({{100}, {200}, {300}});
  LoopbackJob job(3, absl::StrCat("workers: 2 ", kConfig));
  Worker first(job, 0, manifest);
  Worker second(job, 1, manifest);
  std::thread other([&] { second.SeedOrPull(); });
  first.SeedOrPull();
  other.join();
  absl::StatusOr<RoundOutcome> outcome;
  // Rank 1 never pushes: rank 0 waits in its commit.
  std::thread waiting([&] { outcome = first.Step(1); });
  job.Stop(2);
  waiting.join();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("shard 2"));
  const absl::StatusOr<RoundOutcome> later = second.Step(2);
  EXPECT_EQ(later.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(later.status().message()), HasSubstr("shard 2"));
}

TEST(Failure, ASupersededSessionIsToldAndTheNewOneGoesOn) {
  const Manifest manifest = ShapedManifest({{100}, {}});
  LoopbackJob job(2, absl::StrCat("workers: 1 ", kConfig));
  Worker former(job, 0, manifest);
  former.SeedOrPull();
  ASSERT_TRUE(former.Step(1).ok());
  Worker latter(job, 0, manifest);
  latter.SeedOrPull();
  EXPECT_EQ(latter.parameters, former.parameters);
  const absl::StatusOr<RoundOutcome> refused = former.Step(2);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("superseded"));
  const absl::StatusOr<RoundOutcome> outcome = latter.Step(3);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->version, 2u);
}

TEST(Failure, AGradientAfterTheFirstOneOfItsRound) {
  const Manifest manifest = ShapedManifest({{100}, {7}, {}});
  LoopbackJob job(2, absl::StrCat("workers: 1 ", kConfig));
  Worker worker(job, 0, manifest);
  worker.SeedOrPull();
  const HostTensors seed = worker.parameters;
  const HostTensors first = MakeTensors(manifest, 1);
  const HostTensors second = MakeTensors(manifest, 2);
  // Before the Commit it replaces the first one.
  ASSERT_TRUE(worker.client->Push(Views(first)).ok());
  absl::StatusOr<RoundOutcome> outcome = worker.Step(2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  for (size_t i = 0; i < seed[0].size(); ++i) {
    ASSERT_NEAR(worker.parameters[0][i], seed[0][i] - 0.1 * second[0][i], 1e-6);
  }
  // After the round, as when a Pull has failed, it does not count, and its
  // worker learns that.
  ASSERT_TRUE(worker.client->Push(Views(first)).ok());
  outcome = worker.client->Commit({});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
  outcome = worker.Step(2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->version, 2u);
  EXPECT_FALSE(outcome->included);
  EXPECT_FALSE(worker.client->Wait(2)->included);
  outcome = worker.Step(3);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->included);
}

TEST(Failure, ARowThatIsNotFiniteIsExcludedEverywhere) {
  const Manifest manifest = ShapedManifest({{1000}, {10}, {}});
  LoopbackJob job(3, absl::StrCat("workers: 2 ", kConfig));
  HostTensors results[2];
  RunWorkers(2, [&](int rank) {
    Worker worker(job, rank, manifest);
    worker.SeedOrPull();
    HostTensors gradient = MakeTensors(manifest, 40 + rank);
    if (rank == 1) gradient[1][3] = std::numeric_limits<float>::infinity();
    const absl::StatusOr<RoundOutcome> outcome = worker.client->PushPull(
        Views(gradient), {}, MutableViews(&worker.parameters));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->included, rank == 0);
    EXPECT_THAT(outcome->ranks, testing::ElementsAre(0));
    EXPECT_THAT(outcome->excluded_ranks, testing::ElementsAre(1));
    results[rank] = worker.parameters;
  });
  EXPECT_EQ(results[0], results[1]);
  const HostTensors seed = MakeTensors(manifest, 7);
  const HostTensors gradient = MakeTensors(manifest, 40);
  for (size_t k = 0; k < seed[0].size(); ++k) {
    // Adasum of one row is the row.
    ASSERT_NEAR(results[0][0][k], seed[0][k] - 0.1 * gradient[0][k], 1e-6);
  }
}

TEST(Failure, AnotherManifestNamesTheFirstTensorThatDiffers) {
  LoopbackJob job(1, absl::StrCat("workers: 2 ", kConfig));
  Worker worker(job, 0, ShapedManifest({{4}, {5}}));
  const absl::StatusOr<std::unique_ptr<AggClient>> refused =
      AggClient::Connect(job.Options(1, ShapedManifest({{4}, {6}})));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("\"t1\""));
}

}  // namespace
}  // namespace agg
