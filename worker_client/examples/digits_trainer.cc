// The training loop: gradient, PushPull, again. All workers draw the same
// order of examples and take their part of each batch, as the version says.
#include "worker_client/examples/digits_trainer.h"

#include <cmath>
#include <map>
#include <utility>

#include "absl/types/span.h"
#include "server/base/status_macros.h"

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

// What the rounds of a training come to, by the version that each began with:
// a round that is done again counts once.
class Losses {
 public:
  explicit Losses(int rounds_per_epoch) : rounds_per_epoch_(rounds_per_epoch) {}

  void Add(uint64_t version, double loss) { losses_[version] = loss; }
  void GoBack(uint64_t version) {
    losses_.erase(losses_.lower_bound(version), losses_.end());
  }
  int64_t rounds() const { return static_cast<int64_t>(losses_.size()); }

  // By epoch; those without any round are left out.
  std::vector<double> Means() const {
    std::map<uint64_t, std::pair<double, int>> sums;
    for (const auto& [version, loss] : losses_) {
      if (std::isnan(loss)) continue;
      auto& [sum, num] = sums[version / rounds_per_epoch_];
      sum += loss;
      ++num;
    }
    std::vector<double> means;
    for (const auto& epoch : sums) {
      means.push_back(epoch.second.first / epoch.second.second);
    }
    return means;
  }

 private:
  const uint64_t rounds_per_epoch_;
  std::map<uint64_t, double> losses_;
};

absl::Status TrainRounds(const DigitsTraining& training, const DigitsData& data,
                         AggClient* client, const OnRound& on_round,
                         DigitsTensors* parameters, Losses* losses) {
  const auto rounds =
      static_cast<uint64_t>(RoundsPerEpoch(training, data.num_examples()));
  const uint64_t end = rounds * static_cast<uint64_t>(training.epochs);
  const std::vector<MutableTensorView> views = parameters->mutable_views();
  DigitsTensors gradient;
  std::vector<int> order;
  int order_of = -1;  // epoch
  while (client->version() < end && !client->finished()) {
    const uint64_t version = client->version();
    const int epoch = static_cast<int>(version / rounds);
    if (epoch != order_of) {
      order = EpochOrder(data.num_examples(), training.seed, epoch);
      order_of = epoch;
    }
    PushInfo info;
    info.examples = training.batch;
    info.loss = DigitsGradient(
        *parameters, data,
        WorkerBatch(training, order, static_cast<int>(version % rounds)),
        &gradient);
    if (training.spoil != nullptr) training.spoil(version, &gradient);
    AGG_ASSIGN_OR_RETURN(const RoundOutcome outcome,
                         client->PushPull(gradient.views(), info, views));
    if (outcome.kind == RoundOutcome::Kind::kRewound) {
      losses->GoBack(outcome.version);
      continue;
    }
    // A round that was missed has no row of this worker, and no loss.
    if (outcome.included) losses->Add(version, outcome.loss);
    on_round(outcome, *parameters);
  }
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
  Losses losses(RoundsPerEpoch(training, data.num_examples()));
  absl::Status status = client->SeedOrPull(parameters);
  if (status.ok()) {
    status = TrainRounds(training, data, client, on_round, &result.parameters,
                         &losses);
  }
  // The job may send narrowed parameters; the result is in full precision.
  if (status.ok()) {
    status = client->Pull(client->version(), parameters, Precision::kFull);
  }
  if (!status.ok()) return status;
  result.rounds = losses.rounds();
  result.epoch_losses = losses.Means();
  return result;
}

}  // namespace agg
