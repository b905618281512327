// What a checkpoint takes out of a shard's memory, and what it puts back: the
// only place that knows both the files' slices and the backend's arrays.
#ifndef AGG_SERVER_SHARD_SHARD_CHECKPOINT_H_
#define AGG_SERVER_SHARD_SHARD_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/shard/shard_replica.h"

namespace agg {

// Buffer of an array, by the numbers of checkpoint arrays; null if the
// optimizer keeps fewer.
Buffer* ArrayOf(ParameterStore* store, int array);

// Puts parameters and optimizer state into the arrays of a shard's own part,
// one array after the other: for a checkpoint and for a copy that is fetched.
// Thread-compatible; nobody computes meanwhile. Takes 4 bytes of host memory
// for each element. The arrays may hold a part of it after an error.
class ArrayLoader : public ArrayTarget {
 public:
  // `backend` and `store` outlive it; `num_elements`: of the layout.
  ArrayLoader(const OptimizerOptions& optimizer, Backend* backend,
              ParameterStore* store, int64_t num_elements);

  // Takes the memory of a version; comes first. Errors are those of
  // ParameterStore::NextSnapshot.
  absl::Status Begin();

  // Returns where the array goes; array 0 first. The seed lands there, too: the
  // backend's Load then does for both what follows from the parameters, the
  // narrowed copy among them.
  absl::StatusOr<absl::Span<float>> Destination(int array) override;
  absl::Status Finish(int array) override;

  // The version to publish, once all arrays are there.
  std::shared_ptr<const Snapshot> snapshot() const { return snapshot_; }

 private:
  const OptimizerOptions optimizer_;
  Backend* const backend_;
  ParameterStore* const store_;
  const int64_t num_elements_;
  std::shared_ptr<Snapshot> snapshot_;
  std::vector<float> state_;
};

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
