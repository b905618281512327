// A worker of the digits' training that is wrong on purpose: it takes part as
// digits_worker does, and pushes something else than its gradient.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "worker_client/agg_client.h"
#include "worker_client/client_event.h"
#include "worker_client/examples/digits_trainer.h"
#include "worker_client/examples/split_mix.h"

ABSL_FLAG(std::string, garbage, "noise",
          "what is pushed: noise (normal, 100 times as long as the gradient), "
          "matched (normal, as long as it), flip (the gradient times -10), "
          "turn (times -1)");
ABSL_FLAG(std::string, coordinator, "", "address of shard 0");
ABSL_FLAG(int, rank, 1, "this worker's rank");
ABSL_FLAG(int, workers, 8, "workers of the job");
ABSL_FLAG(int, batch, 8, "examples per worker and round");
ABSL_FLAG(int, epochs, 1, "passes over the training examples");
ABSL_FLAG(uint64_t, seed, 0, "of the initial weights and the epochs' orders");
ABSL_FLAG(std::string, data, "", "the digits");

namespace agg {
namespace {

double Norm(DigitsTensors* tensors) {
  double sum = 0.0;
  for (const MutableTensorView& view : tensors->mutable_views()) {
    const auto* values = static_cast<const float*>(view.data);
    for (int64_t i = 0; i < view.num_elements; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  return std::sqrt(sum);
}

void Scale(double factor, DigitsTensors* tensors) {
  for (const MutableTensorView& view : tensors->mutable_views()) {
    auto* values = static_cast<float*>(view.data);
    for (int64_t i = 0; i < view.num_elements; ++i) {
      values[i] = static_cast<float>(factor * static_cast<double>(values[i]));
    }
  }
}

// Normally distributed, of `length` times the gradient's norm.
void BecomeNoise(uint64_t version, double length, DigitsTensors* gradient) {
  const double norm = Norm(gradient);
  SplitMix random(/*seed=*/1234, version);
  for (const MutableTensorView& view : gradient->mutable_views()) {
    auto* values = static_cast<float*>(view.data);
    for (int64_t i = 0; i < view.num_elements; ++i) {
      values[i] = static_cast<float>(random.Normal());
    }
  }
  Scale(length * norm / Norm(gradient), gradient);
}

absl::Status SetSpoil(const std::string& garbage, DigitsTraining* training) {
  if (garbage == "noise" || garbage == "matched") {
    const double length = garbage == "noise" ? 100.0 : 1.0;
    training->spoil = [length](uint64_t version, DigitsTensors* gradient) {
      BecomeNoise(version, length, gradient);
    };
    return absl::OkStatus();
  }
  if (garbage == "flip" || garbage == "turn") {
    const double factor = garbage == "flip" ? -10.0 : -1.0;
    training->spoil = [factor](uint64_t, DigitsTensors* gradient) {
      Scale(factor, gradient);
    };
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--garbage is ", garbage, "; allowed: noise, matched, flip, turn"));
}

absl::Status Run() {
  DigitsTraining training;
  training.rank = absl::GetFlag(FLAGS_rank);
  training.workers = absl::GetFlag(FLAGS_workers);
  training.batch = absl::GetFlag(FLAGS_batch);
  training.epochs = absl::GetFlag(FLAGS_epochs);
  training.seed = absl::GetFlag(FLAGS_seed);
  absl::Status status = SetSpoil(absl::GetFlag(FLAGS_garbage), &training);
  if (!status.ok()) return status;
  absl::StatusOr<DigitsData> data = ReadDigits(absl::GetFlag(FLAGS_data));
  if (!data.ok()) return data.status();
  *data = data->Range(0, kDigitsTrainingExamples);
  ClientOptions options;
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.rank = training.rank;
  options.manifest = DigitsManifest();
  options.connect_timeout = absl::Minutes(2);
  options.on_event = PrintEvent;
  const auto client = AggClient::Connect(options);
  if (!client.ok()) return client.status();
  return TrainDigits(training, *data, client->get(),
                     [](const RoundOutcome& outcome, const DigitsTensors&) {
                       std::fprintf(stderr, "round %lld, included %d: %s\n",
                                    static_cast<long long>(outcome.round),
                                    outcome.included ? 1 : 0,
                                    outcome.message.c_str());
                     })
      .status();
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = agg::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "garbage_worker: %s\n", status.ToString().c_str());
  return 1;
}
