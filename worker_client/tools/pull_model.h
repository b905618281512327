// A complete published version of a job's parameters, for agg_pull and aggctl.
#ifndef AGG_WORKER_CLIENT_TOOLS_PULL_MODEL_H_
#define AGG_WORKER_CLIENT_TOOLS_PULL_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/shard_plan.h"
#include "proto/tls_options.h"
#include "worker_client/client_event.h"
#include "worker_client/npz/npz.h"

namespace agg {

struct PulledModel {
  uint64_t version = 0;
  int64_t num_parameters = 0;
  std::vector<NpzTensor> tensors;  // manifest order
};

// Returns version 0 of such a job, of zeros.
PulledModel ZeroModel(const Manifest& manifest);

using EventCallback = std::function<void(const ClientEvent&)>;

// Pulls `version`, or the newest, in float32 as an observer, so that the job is
// not disturbed. Waits for no version. AggClient's errors; also OUT_OF_RANGE
// for a version that is not published yet. `on_event` and `token_file` are
// ClientOptions'.
absl::StatusOr<PulledModel> PullModel(const std::string& coordinator,
                                      const TlsOptions& tls,
                                      const absl::optional<uint64_t>& version,
                                      absl::Duration connect_timeout,
                                      const EventCallback& on_event = nullptr,
                                      const std::string& token_file = "");

// "version 4: 2 tensors, 650 parameters -> params.npz".
std::string Describe(const PulledModel& model, const std::string& path);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_PULL_MODEL_H_
