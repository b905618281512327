// One worker's part of training the digits network through an agg_server job.
#ifndef AGG_WORKER_CLIENT_EXAMPLES_DIGITS_TRAINER_H_
#define AGG_WORKER_CLIENT_EXAMPLES_DIGITS_TRAINER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_client/agg_client.h"
#include "worker_client/examples/digits_data.h"
#include "worker_client/examples/digits_model.h"

namespace agg {

// The first lines of the data are for training, the rest for the test.
inline constexpr int kDigitsTrainingExamples = 1440;

// Changes the gradient at this version before it is pushed.
using SpoilGradient =
    std::function<void(uint64_t version, DigitsTensors* gradient)>;

struct DigitsTraining {
  int rank = 0;
  int workers = 1;
  int batch = 2;  // examples of each worker in each round
  int epochs = 2;
  uint64_t seed = 0;
  SpoilGradient spoil;  // null: none; for workers that are wrong on purpose
};

struct DigitsResult {
  int64_t rounds = 0;  // that this worker took part in, and that still stand
  // Mean over the epoch's rounds of them; epochs without any are left out.
  std::vector<double> epoch_losses;
  DigitsTensors parameters;  // the last version, in full precision
};

// The examples of one worker in round `round` of an epoch in `order`: the
// global batch is the next workers * batch of them, the worker's part the
// rank-th `batch` of that.
absl::Span<const int> WorkerBatch(const DigitsTraining& training,
                                  absl::Span<const int> order, int round);

// Rounds of an epoch: an incomplete last batch is dropped.
int RoundsPerEpoch(const DigitsTraining& training, int num_examples);

// Trains until the version that ends the last epoch, or the job's end. Which
// batch is computed follows from the version alone: where the job goes back to
// an earlier one, the same rounds are done again, with the same bits.
// `on_round` gets every outcome but kRewound, and the parameters after it.
absl::StatusOr<DigitsResult> TrainDigits(
    const DigitsTraining& training, const DigitsData& data, AggClient* client,
    const std::function<void(const RoundOutcome&, const DigitsTensors&)>&
        on_round);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_EXAMPLES_DIGITS_TRAINER_H_
