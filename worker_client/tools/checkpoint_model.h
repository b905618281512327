// A checkpoint's parameters as complete tensors, for agg_pull: from files, when
// no job is running.
#ifndef AGG_WORKER_CLIENT_TOOLS_CHECKPOINT_MODEL_H_
#define AGG_WORKER_CLIENT_TOOLS_CHECKPOINT_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker_client/tools/pull_model.h"

namespace agg {

// `folder`: with manifest.json and all parts, under any name
// (server/checkpoint/README.md 1). Compares all checksums. Errors name the
// file: DATA_LOSS and INVALID_ARGUMENT if it is damaged, UNIMPLEMENTED if it is
// of a later release, else FileSystem's.
absl::StatusOr<PulledModel> ReadCheckpointModel(const std::string& folder);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_CHECKPOINT_MODEL_H_
