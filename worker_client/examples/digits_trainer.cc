// The training loop: gradient, PushPull, again. All workers draw the same
// order of examples and take their part of each batch.
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
  const int64_t per_round = int64_t{training.workers} * training.batch;
  return static_cast<int>(num_examples / per_round);
}

namespace {

using OnRound = std::function<void(const RoundOutcome&, const DigitsTensors&)>;

// The rounds of one epoch, until the job ends; adds them to *result.
absl::Status TrainEpoch(const DigitsTraining& training, const DigitsData& data,
                        int epoch, AggClient* client, const OnRound& on_round,
                        DigitsResult* result) {
  const std::vector<int> order =
      EpochOrder(data.num_examples(), training.seed, epoch);
  const int rounds = RoundsPerEpoch(training, data.num_examples());
  const std::vector<MutableTensorView> parameters =
      result->parameters.mutable_views();
  DigitsTensors gradient;
  double loss_sum = 0;
  int done = 0;
  for (int round = 0; round < rounds; ++round) {
    PushInfo info;
    info.examples = training.batch;
    info.loss = DigitsGradient(result->parameters, data,
                               WorkerBatch(training, order, round), &gradient);
    const absl::StatusOr<RoundOutcome> outcome =
        client->PushPull(gradient.views(), info, parameters);
    if (!outcome.ok()) return outcome.status();
    ++result->rounds;
    ++done;
    loss_sum += outcome->loss;
    on_round(*outcome, result->parameters);
    if (outcome->finished) break;
  }
  result->epoch_losses.push_back(loss_sum / done);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DigitsResult> TrainDigits(
    const DigitsTraining& training, const DigitsData& data, AggClient* client,
    const std::function<void(const RoundOutcome&, const DigitsTensors&)>&
        on_round) {
  DigitsResult result;
  result.parameters = InitialDigitsParameters(training.seed);
  const std::vector<MutableTensorView> parameters =
      result.parameters.mutable_views();
  absl::Status status = client->SeedOrPull(parameters);
  for (int epoch = 0;
       status.ok() && epoch < training.epochs && !client->finished(); ++epoch) {
    status = TrainEpoch(training, data, epoch, client, on_round, &result);
  }
  // The job may send narrowed parameters; the result is in full precision.
  if (status.ok()) {
    status = client->Pull(client->version(), parameters, Precision::kFull);
  }
  if (!status.ok()) return status;
  return result;
}

}  // namespace agg
