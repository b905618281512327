#include "worker_client/examples/digits_trainer.h"

#include "absl/types/span.h"

namespace agg {

absl::Span<const int> WorkerBatch(const DigitsTraining& training,
                                  absl::Span<const int> order, int round) {
  const size_t batch = static_cast<size_t>(training.batch);
  const size_t part = static_cast<size_t>(round) * training.workers +
                      static_cast<size_t>(training.rank);
  return order.subspan(part * batch, batch);
}

int RoundsPerEpoch(const DigitsTraining& training, int num_examples) {
  return num_examples / (training.workers * training.batch);
}

absl::StatusOr<DigitsResult> TrainDigits(
    const DigitsTraining& training, const DigitsData& data, AggClient* client,
    const std::function<void(const RoundOutcome&, const DigitsTensors&)>&
        on_round) {
  DigitsResult result;
  result.parameters = InitialDigitsParameters(training.seed);
  const std::vector<MutableTensorView> parameters =
      result.parameters.mutable_views();
  absl::Status status = client->SeedOrPull(parameters);
  if (!status.ok()) return status;

  DigitsTensors gradient;
  const int rounds = RoundsPerEpoch(training, data.num_examples());
  for (int epoch = 0; epoch < training.epochs && !client->finished(); ++epoch) {
    const std::vector<int> order =
        EpochOrder(data.num_examples(), training.seed, epoch);
    double loss_sum = 0;
    for (int round = 0; round < rounds; ++round) {
      PushInfo info;
      info.examples = training.batch;
      info.loss =
          DigitsGradient(result.parameters, data,
                         WorkerBatch(training, order, round), &gradient);
      absl::StatusOr<RoundOutcome> outcome =
          client->PushPull(gradient.views(), info, parameters);
      if (!outcome.ok()) return outcome.status();
      ++result.rounds;
      loss_sum += outcome->loss;
      on_round(*outcome, result.parameters);
      if (outcome->finished) break;
    }
    result.epoch_losses.push_back(loss_sum / rounds);
  }
  status = client->Pull(client->version(), parameters, Precision::kFull);
  if (!status.ok()) return status;
  return result;
}

}  // namespace agg
