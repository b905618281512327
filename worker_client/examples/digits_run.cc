#include "worker_client/examples/digits_run.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/status_macros.h"
#include "worker_client/agg_client.h"
#include "worker_client/client_event.h"
#include "worker_client/examples/digits_trainer.h"
#include "worker_client/npz/npz.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:50051", "address of shard 0");
ABSL_FLAG(std::string, token_file, "",
          "whose first line says who this worker is; default: what "
          "AGG_TOKEN_FILE names");
ABSL_FLAG(int, rank, 0, "this worker's rank, 0..workers-1");
ABSL_FLAG(int, workers, 1, "workers of the job");
ABSL_FLAG(int, batch, 2, "examples per worker and round");
ABSL_FLAG(int, epochs, 2, "passes over the training examples");
ABSL_FLAG(uint64_t, seed, 0, "of the initial weights and the epochs' orders");
ABSL_FLAG(std::string, data, "deploy/data/digits.csv.gz", "the digits");
ABSL_FLAG(std::string, save, "", "rank 0: .npz file of the final parameters");
ABSL_FLAG(int, accuracy_every, 0,
          "rank 0: rounds between test accuracies in its lines; 0: none");
ABSL_FLAG(absl::Duration, recovery_window, agg::ClientOptions().recovery_window,
          "how long a job that has lost a process is waited for; 0: not");
ABSL_FLAG(std::string, tls_ca, "",
          "file of the CA of the servers' certificates; default: $AGG_TLS_CA");
ABSL_FLAG(std::string, tls_certificate, "",
          "file to show to them; default: $AGG_TLS_CERTIFICATE");
ABSL_FLAG(std::string, tls_key, "", "its key's; default: $AGG_TLS_KEY");
ABSL_FLAG(std::string, tls_server_name, "",
          "that their certificates have, if not the address's host");
ABSL_FLAG(std::string, audit_log, "",
          "file that gets a line for each row, for agg_report --audit");

namespace agg {
namespace {

void PrintLine(const Json& line) {
  std::puts(JsonLine(line).c_str());
  std::fflush(stdout);
}

Json RoundLine(const RoundOutcome& outcome) {
  return {{"round", outcome.round},
          {"loss", ExactNumber(outcome.loss)},
          {"learning_rate", ExactNumber(outcome.learning_rate)},
          {"gain", ExactNumber(outcome.gain)},
          {"tau", ExactNumber(outcome.tau)},
          {"orthogonality", ExactNumber(outcome.orthogonality)}};
}

absl::Status Save(const DigitsTensors& parameters, const std::string& path) {
  const Manifest manifest = DigitsManifest();
  std::vector<NpzTensor> tensors;
  const std::vector<TensorView> views = parameters.views();
  for (size_t i = 0; i < views.size(); ++i) {
    const TensorSpec& spec = manifest.tensors[i];
    const auto* values = static_cast<const float*>(views[i].data);
    tensors.push_back(
        NpzTensor{spec.name, spec.shape,
                  std::vector<float>(values, values + views[i].num_elements)});
  }
  return WriteNpz(path, tensors);
}

Json FinalLine(const JobDescription& job, const DigitsResult& result,
               double accuracy) {
  return {{"final", true},
          {"rule", job.rule},
          {"scope", job.scope},
          {"rounds", result.rounds},
          {"train_loss", ExactNumbers(result.epoch_losses)},
          {"test_accuracy", ExactNumber(accuracy)}};
}

absl::StatusOr<DigitsTraining> TrainingFromFlags() {
  DigitsTraining training;
  training.rank = absl::GetFlag(FLAGS_rank);
  training.workers = absl::GetFlag(FLAGS_workers);
  training.batch = absl::GetFlag(FLAGS_batch);
  training.epochs = absl::GetFlag(FLAGS_epochs);
  training.seed = absl::GetFlag(FLAGS_seed);
  if (training.workers < 1 || training.rank < 0 ||
      training.rank >= training.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank=", training.rank, " --workers=", training.workers,
                     "; allowed: ranks 0..workers-1"));
  }
  if (training.batch < 1 || training.epochs < 1 ||
      RoundsPerEpoch(training, kDigitsTrainingExamples) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch=", training.batch, " --epochs=", training.epochs,
                     "; allowed: both 1 or more, workers * batch at most ",
                     kDigitsTrainingExamples));
  }
  return training;
}

absl::StatusOr<std::unique_ptr<AggClient>> Connect(
    const DigitsTraining& training) {
  ClientOptions options;
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.token_file = absl::GetFlag(FLAGS_token_file);
  options.rank = training.rank;
  options.manifest = DigitsManifest();
  // Many workers on few cores take their time to start.
  options.connect_timeout = absl::Minutes(2);
  options.recovery_window = absl::GetFlag(FLAGS_recovery_window);
  options.audit_log = absl::GetFlag(FLAGS_audit_log);
  options.tls.ca = absl::GetFlag(FLAGS_tls_ca);
  options.tls.certificate = absl::GetFlag(FLAGS_tls_certificate);
  options.tls.key = absl::GetFlag(FLAGS_tls_key);
  options.tls.server_name = absl::GetFlag(FLAGS_tls_server_name);
  options.tune_malloc = true;
  options.on_event = PrintEvent;
  return AggClient::Connect(options);
}

}  // namespace

absl::Status RunDigitsWorker(SpoilGradient spoil) {
  AGG_ASSIGN_OR_RETURN(DigitsTraining training, TrainingFromFlags());
  training.spoil = std::move(spoil);
  AGG_ASSIGN_OR_RETURN(DigitsData data, ReadDigits(absl::GetFlag(FLAGS_data)));
  if (data.num_examples() <= kDigitsTrainingExamples) {
    return absl::InvalidArgumentError("the data has no examples for the test");
  }
  const DigitsData test =
      data.Range(kDigitsTrainingExamples, data.num_examples());
  data = data.Range(0, kDigitsTrainingExamples);

  AGG_ASSIGN_OR_RETURN(std::unique_ptr<AggClient> client, Connect(training));

  const bool prints = training.rank == 0;
  const int every = absl::GetFlag(FLAGS_accuracy_every);
  AGG_ASSIGN_OR_RETURN(
      DigitsResult result,
      TrainDigits(
          training, data, client.get(),
          [&](const RoundOutcome& outcome, const DigitsTensors& parameters) {
            if (!prints) return;
            Json line = RoundLine(outcome);
            if (every > 0 && outcome.version % every == 0) {
              line["accuracy"] = ExactNumber(DigitsAccuracy(parameters, test));
            }
            PrintLine(line);
          }));
  if (!prints) return absl::OkStatus();
  if (!absl::GetFlag(FLAGS_save).empty()) {
    AGG_RETURN_IF_ERROR(Save(result.parameters, absl::GetFlag(FLAGS_save)));
  }
  PrintLine(FinalLine(client->job(), result,
                      DigitsAccuracy(result.parameters, test)));
  return absl::OkStatus();
}

}  // namespace agg
