// Slices of all parts, put together to tensors; apart from pull_model.h, which
// asks a job.
#include "worker_client/tools/checkpoint_model.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "server/base/file_system.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "worker_client/npz/npz.h"

namespace agg {
namespace {

absl::Status ReadTensors(CheckpointReader* reader,
                         std::vector<NpzTensor>* tensors) {
  const std::vector<Slice>& slices = reader->plan().slices;
  for (const Slice& slice : slices) {
    const absl::Span<float> values =
        absl::MakeSpan((*tensors)[slice.tensor].values)
            .subspan(static_cast<size_t>(slice.begin),
                     static_cast<size_t>(slice.num_elements));
    AGG_RETURN_IF_ERROR(reader->ReadSlice(slice.index, 0, values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PulledModel> ReadCheckpointModel(const std::string& folder) {
  const std::unique_ptr<FileSystem> files = MakeSystemFiles();
  const absl::StatusOr<CheckpointManifest> manifest =
      ReadCheckpointManifest(files.get(), folder, absl::nullopt);
  if (!manifest.ok()) return manifest.status();
  AGG_ASSIGN_OR_RETURN(
      CheckpointReader reader,
      CheckpointReader::Create(files.get(), folder, *manifest));
  // All parts before any memory for their tensors: a file that lacks what its
  // manifest says costs nothing.
  absl::Status status;
  for (int i = 0; i < manifest->num_shards && status.ok(); ++i) {
    status = reader.VerifyPart(i);
  }
  if (!status.ok()) return status;
  PulledModel model;
  model.version = manifest->id.version;
  model.num_parameters = NumElements(manifest->tensors);
  for (const TensorSpec& tensor : manifest->tensors.tensors) {
    model.tensors.push_back(
        {tensor.name, tensor.shape, std::vector<float>(NumElements(tensor))});
  }
  status = ReadTensors(&reader, &model.tensors);
  if (!status.ok()) return status;
  return model;
}

}  // namespace agg
