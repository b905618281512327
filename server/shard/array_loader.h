// Puts parameters and optimizer state into the arrays of a shard's own part,
// one array after the other: for a checkpoint and for a copy that is fetched.
#ifndef AGG_SERVER_SHARD_ARRAY_LOADER_H_
#define AGG_SERVER_SHARD_ARRAY_LOADER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/shard/copy_transfer.h"

namespace agg {

// Buffer of an array, by the numbers of checkpoint arrays; null if the
// optimizer keeps fewer.
Buffer* ArrayOf(ParameterStore* store, int array);

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

}  // namespace agg

#endif  // AGG_SERVER_SHARD_ARRAY_LOADER_H_
