// The digits example without a server's process: data, model, the batches that
// the workers divide among themselves, and a training that goes back.
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/epoch_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/examples/digits_data.h"
#include "worker_client/examples/digits_model.h"
#include "worker_client/examples/digits_trainer.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr char kDigits[] = "deploy/data/digits.csv.gz";

DigitsData Digits() { return ReadDigits(kDigits).value(); }

TEST(DigitsDataTest, ReadsTheWholeSet) {
  const auto digits = ReadDigits(kDigits);
  ASSERT_TRUE(digits.ok()) << digits.status();
  EXPECT_EQ(digits->num_examples(), 1797);
  EXPECT_EQ(digits->pixels.size(), 1797u * 64);
  // The first line: 0,0,5,13,9,1,... and the label 0.
  EXPECT_EQ(digits->labels[0], 0);
  EXPECT_EQ(digits->image(0)[2], 5 / 16.0f);
  EXPECT_EQ(digits->image(0)[3], 13 / 16.0f);
}

TEST(DigitsDataTest, NamesTheBadLine) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += "16,";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {line + "9\n" + line + "10\n", "line 2"},
      {line + "9\n\n" + line + "\n", "line 3"},
      {"17," + line.substr(3) + "1\n", "line 1"},
      {line + "1,1\n", "line 1"},
      {line.substr(3) + "1\n", "line 1"},
  };
  const std::string path = absl::StrCat(::testing::TempDir(), "/bad.csv");
  for (const auto& c : cases) {
    std::ofstream(path, std::ios::trunc) << c.first;
    const absl::Status status = ReadDigits(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.second));
  }
  EXPECT_EQ(ReadDigits("no/such/file").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(DigitsDataTest, ACutFileIsAnError) {
  std::ifstream in(kDigits, std::ios::binary);
  std::string whole((std::istreambuf_iterator<char>(in)),
                    std::istreambuf_iterator<char>());
  const std::string path = absl::StrCat(::testing::TempDir(), "/cut.csv.gz");
  std::ofstream(path, std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_EQ(ReadDigits(path).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DigitsTrainerTest, AnEpochIsAPermutationOfItsOwn) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed : {0, 1}) {
    for (int epoch : {0, 1, 2}) {
      std::vector<int> order = EpochOrder(1440, seed, epoch);
      EXPECT_TRUE(orders.insert(order).second);
      EXPECT_EQ(order, EpochOrder(1440, seed, epoch));
      std::sort(order.begin(), order.end());
      std::vector<int> all(1440);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(order, all);
    }
  }
}

TEST(DigitsTrainerTest, WorkersDivideTheGlobalBatch) {
  const std::vector<int> order = EpochOrder(1440, 3, 0);
  for (int workers : {1, 5, 32, 33}) {
    DigitsTraining training;
    training.workers = workers;
    const int rounds = RoundsPerEpoch(training, 1440);
    EXPECT_EQ(rounds, 1440 / (2 * workers));
    std::vector<int> seen;
    for (int round = 0; round < rounds; ++round) {
      for (training.rank = 0; training.rank < workers; ++training.rank) {
        const absl::Span<const int> batch = WorkerBatch(training, order, round);
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
    }
    EXPECT_EQ(seen, std::vector<int>(order.begin(),
                                     order.begin() + rounds * workers * 2));
  }
}

TEST(DigitsModelTest, InitialWeightsAreHeNormal) {
  const DigitsTensors parameters = InitialDigitsParameters(7);
  double sum = 0, squares = 0;
  for (float weight : parameters.hidden_weights) {
    sum += weight;
    squares += weight * weight;
  }
  // 4096 samples: five standard errors of mean and variance.
  EXPECT_NEAR(sum / 4096, 0, 5 * std::sqrt(2.0 / 64 / 4096));
  EXPECT_NEAR(squares / 4096, 2.0 / 64, 5 * 2.0 / 64 * std::sqrt(2.0 / 4096));
  EXPECT_EQ(parameters.hidden_bias, std::vector<float>(64));
  EXPECT_EQ(parameters.output_bias, std::vector<float>(10));
  EXPECT_NE(parameters.hidden_weights,
            InitialDigitsParameters(8).hidden_weights);
}

// Central differences of the loss in every tensor. The loss is a double of
// float activations, so the step is a compromise: 1e-3 leaves about 1e-4. Where
// a ReLU's kink lies within the step the one-sided differences disagree and say
// nothing about the gradient; few elements may be such.
TEST(DigitsModelTest, GradientIsThatOfTheMeanLoss) {
  const DigitsData data = Digits();
  const std::vector<int> examples = {3, 14, 15, 92};
  DigitsTensors parameters = InitialDigitsParameters(1);
  // Biases off zero, so that a wrong bias gradient shows.
  SplitMix random(1, 9);
  for (float& value : parameters.hidden_bias) {
    value = static_cast<float>(0.1 * random.Normal());
  }
  DigitsTensors gradient, scratch;
  const double loss = DigitsGradient(parameters, data, examples, &gradient);
  const std::vector<MutableTensorView> at = parameters.mutable_views();
  const std::vector<MutableTensorView> derivative = gradient.mutable_views();
  for (size_t tensor = 0; tensor < at.size(); ++tensor) {
    double largest = 0;
    int kinks = 0;
    for (int sample = 0; sample < 50; ++sample) {
      const uint32_t i =
          random.Below(static_cast<uint32_t>(at[tensor].num_elements));
      float* value = at[tensor].data + i;
      const float saved = *value;
      constexpr float kStep = 1e-3f;
      *value = saved + kStep;
      const double above = DigitsGradient(parameters, data, examples, &scratch);
      *value = saved - kStep;
      const double below = DigitsGradient(parameters, data, examples, &scratch);
      *value = saved;
      if (std::abs(above + below - 2 * loss) > 2e-3 * kStep) {
        ++kinks;
        continue;
      }
      const double numeric = (above - below) / (2 * kStep);
      EXPECT_NEAR(derivative[tensor].data[i], numeric, 1e-3)
          << "tensor " << tensor << " element " << i;
      largest = std::max(largest, std::abs(numeric));
    }
    EXPECT_LE(kinks, 5) << "tensor " << tensor;
    EXPECT_GT(largest, 0.02) << "tensor " << tensor << " shows nothing";
  }
}

// Plain SGD in process with the mean of the workers' gradients.
double TrainedAccuracy(int workers, double learning_rate, uint64_t seed) {
  const DigitsData data = Digits();
  const DigitsData train = data.Range(0, kDigitsTrainingExamples);
  const DigitsData test =
      data.Range(kDigitsTrainingExamples, data.num_examples());
  DigitsTraining training;
  training.workers = workers;
  DigitsTensors parameters = InitialDigitsParameters(seed);
  const std::vector<MutableTensorView> to = parameters.mutable_views();
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<int> order =
        EpochOrder(kDigitsTrainingExamples, seed, epoch);
    const int rounds = RoundsPerEpoch(training, kDigitsTrainingExamples);
    for (int round = 0; round < rounds; ++round) {
      std::vector<DigitsTensors> gradients(workers);
      for (training.rank = 0; training.rank < workers; ++training.rank) {
        DigitsGradient(parameters, train, WorkerBatch(training, order, round),
                       &gradients[training.rank]);
      }
      for (DigitsTensors& gradient : gradients) {
        const std::vector<MutableTensorView> from = gradient.mutable_views();
        for (size_t t = 0; t < to.size(); ++t) {
          for (int64_t i = 0; i < to[t].num_elements; ++i) {
            to[t].data[i] -=
                static_cast<float>(learning_rate / workers * from[t].data[i]);
          }
        }
      }
    }
  }
  return DigitsAccuracy(parameters, test);
}

double MeanAccuracy(int workers, double learning_rate) {
  constexpr int kSeeds = 10;
  double sum = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    sum += TrainedAccuracy(workers, learning_rate, seed);
  }
  return sum / kSeeds;
}

// Means and standard deviations over 30 seeds of a model written in numpy:
// one worker .881 (.011); the mean of 32 at the same learning rate .613 (.050)
// and at .8 .838 (.037). The tolerance is four standard errors of both means.
TEST(DigitsModelTest, TrainsAsTheNumpyModelDoes) {
  EXPECT_NEAR(MeanAccuracy(1, 0.05), 0.881, 0.03);
  EXPECT_NEAR(MeanAccuracy(32, 0.05), 0.613, 0.073);
  EXPECT_NEAR(MeanAccuracy(32, 0.8), 0.838, 0.054);
}

// Training that goes back and does its rounds again ends with the bits of a
// training that did not.

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
