// Joins as an observer, which has no rank, and pulls into zeroed tensors. A
// version that is yet to come is refused.
#include "worker_client/tools/pull_model.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/base/status_macros.h"
#include "worker_client/agg_client.h"
#include "worker_client/tensor_view.h"

namespace agg {

PulledModel ZeroModel(const Manifest& manifest) {
  PulledModel model;
  model.num_parameters = NumElements(manifest);
  for (const TensorSpec& spec : manifest.tensors) {
    model.tensors.push_back(
        {spec.name, spec.shape, std::vector<float>(NumElements(spec))});
  }
  return model;
}

namespace {

// Pull waits for versions to come; a tool should not.
absl::Status CheckPublished(AggClient* client, uint64_t version) {
  AGG_ASSIGN_OR_RETURN(const uint64_t latest, client->LatestVersion());
  if (version <= latest) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "version ", version, " is not published yet; the newest is ", latest));
}

}  // namespace

absl::StatusOr<PulledModel> PullModel(const std::string& coordinator,
                                      const TlsOptions& tls,
                                      const absl::optional<uint64_t>& version,
                                      absl::Duration connect_timeout,
                                      const EventCallback& on_event,
                                      const std::string& token_file) {
  ClientOptions options;
  options.coordinator = coordinator;
  options.tls = tls;
  options.observer = true;
  options.connect_timeout = connect_timeout;
  options.tune_malloc = true;
  // A tool says at once what is wrong.
  options.recovery_window = absl::ZeroDuration();
  options.on_event = on_event;
  options.token_file = token_file;
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<AggClient> client,
                       AggClient::Connect(options));
  PulledModel model = ZeroModel(client->manifest());
  std::vector<MutableTensorView> views;
  for (NpzTensor& tensor : model.tensors) {
    views.emplace_back(tensor.name, absl::MakeSpan(tensor.values));
  }
  if (version.has_value()) {
    model.version = *version;
    AGG_RETURN_IF_ERROR(CheckPublished(client.get(), *version));
    AGG_RETURN_IF_ERROR(client->Pull(*version, views, Precision::kFull));
    return model;
  }
  AGG_ASSIGN_OR_RETURN(const uint64_t latest,
                       client->PullLatest(views, Precision::kFull));
  model.version = latest;
  return model;
}

std::string Describe(const PulledModel& model, const std::string& path) {
  return absl::StrCat("version ", model.version, ": ", model.tensors.size(),
                      " tensors, ", model.num_parameters, " parameters -> ",
                      path);
}

}  // namespace agg
