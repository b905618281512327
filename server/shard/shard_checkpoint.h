// What a checkpoint takes out of a shard's memory, and what it puts back: the
// only place that knows both the files' slices and the backend's arrays.
#ifndef AGG_SERVER_SHARD_SHARD_CHECKPOINT_H_
#define AGG_SERVER_SHARD_SHARD_CHECKPOINT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"

namespace agg {

// How the shard's arrays lie in memory.
ShardArrays ArraysOf(const ShardLayout& layout,
                     const OptimizerOptions& optimizer);

// Makes the function for CheckpointWriter::Capture, between two rounds: it
// copies master weights and optimizer state as they are. `backend` and `store`
// outlive the function.
CheckpointWriter::CopyArray CopyFrom(Backend* backend, ParameterStore* store);

// Compares this shard's share of the parts with the manifest: those whose
// ordinals are `ordinal` modulo `num_shards` of this job. So all shards
// together read each part once. Errors: CheckpointReader's.
absl::Status VerifyShare(CheckpointReader* reader, int ordinal, int num_shards);

// Makes the checkpoint's slices the shard's master weights and optimizer state,
// with all bits, whatever the number of shards was. Returns the version to
// publish. Takes 4 bytes of host memory for each element until it returns.
// Errors: CheckpointReader's and the backend's; INVALID_ARGUMENT: it has other
// arrays than the optimizer. The arrays may hold a part of it then.
// REQUIRES: the checkpoint's tensors are the layout's; nobody computes.
absl::StatusOr<std::shared_ptr<const Snapshot>> RestoreArrays(
    CheckpointReader* reader, const ShardLayout& layout,
    const OptimizerOptions& optimizer, Backend* backend, ParameterStore* store);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_CHECKPOINT_H_
