// Training that goes back and does its rounds again ends with the bits of a
// training that did not.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker_client/epoch_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/examples/digits_data.h"
#include "worker_client/examples/digits_model.h"
#include "worker_client/examples/digits_trainer.h"

namespace agg {
namespace {

struct Trained {
  std::vector<std::vector<float>> parameters;
  std::vector<double> epoch_losses;
  int64_t rounds = 0;
  std::vector<uint64_t> versions;  // in the order in which they were heard of
};

// `disturb` is called with the job and each new version.
Trained Train(const std::function<void(EpochJob*, uint64_t)>& disturb) {
  const DigitsData data =
      ReadDigits("deploy/data/digits.csv.gz")->Range(0, 1440);
  EpochJob job(DigitsManifest(), 2);
  ClientOptions options;
  options.coordinator = job.coordinator();
  options.manifest = DigitsManifest();
  const auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  DigitsTraining training;
  training.batch = 240;  // six rounds
  Trained trained;
  const auto result =
      TrainDigits(training, data, client->get(),
                  [&](const RoundOutcome& outcome, const DigitsTensors&) {
                    trained.versions.push_back(outcome.version);
                    disturb(&job, outcome.version);
                  });
  EXPECT_TRUE(result.ok()) << result.status();
  trained.parameters = job.parameters();
  trained.epoch_losses = result->epoch_losses;
  trained.rounds = result->rounds;
  return trained;
}

TEST(DigitsRecoveryTest, ARewindReplaysItself) {
  const Trained expected = Train([](EpochJob*, uint64_t) {});
  EXPECT_EQ(expected.rounds, 12);
  ASSERT_EQ(expected.epoch_losses.size(), 2u);
  int rewinds = 0;
  const Trained trained = Train([&](EpochJob* job, uint64_t version) {
    // In the second epoch of the data, to its first: another order of examples.
    if (version != 8 || rewinds > 0) return;
    ++rewinds;
    job->End("shard 1 is lost");
    job->Lose(1);
    job->Rewind(4);
    job->Open();
  });
  EXPECT_EQ(rewinds, 1);
  EXPECT_EQ(trained.versions.size(), 12u + 4u);
  EXPECT_EQ(trained.rounds, 12);
  EXPECT_EQ(trained.parameters, expected.parameters);
  EXPECT_EQ(trained.epoch_losses, expected.epoch_losses);
}

// The round in which its session ended has no row of this worker, and no loss.
TEST(DigitsRecoveryTest, ARoundThatWasMissedHasNoLoss) {
  int expiries = 0;
  const Trained trained = Train([&](EpochJob* job, uint64_t version) {
    if (version != 8 || expiries > 0) return;
    ++expiries;
    job->End("shard 1 is lost");
    job->Expire();
    job->CloseWithout();
    job->Open();
  });
  EXPECT_EQ(expiries, 1);
  EXPECT_EQ(trained.versions.size(), 12u);
  EXPECT_EQ(trained.rounds, 11);
  ASSERT_EQ(trained.epoch_losses.size(), 2u);
  for (const double loss : trained.epoch_losses) {
    EXPECT_TRUE(std::isfinite(loss)) << loss;
  }
}

}  // namespace
}  // namespace agg
