// A shard's parameters: master weights and optimizer state, and the versions
// that can be pulled.
#ifndef AGG_SERVER_PARAMS_PARAMETER_STORE_H_
#define AGG_SERVER_PARAMS_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "server/base/mutex.h"
#include "server/params/snapshot.h"

namespace agg {

// Memories of snapshots: the current version, the one before, and the next.
inline constexpr int kNumSnapshots = 3;
// Versions that can be pulled: the current one and the one before (P10).
inline constexpr size_t kNumKeptVersions = 2;

// Master weights and state are touched by one thread at a time (the phases of
// a round are serial); versions may be looked up from any thread.
class ParameterStore {
 public:
  // `num_elements`: of the shard's layout, at least 1. `narrowed`: the dtype of
  // the second copy of each snapshot; f32 means none. Errors are those of
  // Backend::Allocate.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(
      Backend* backend, const OptimizerOptions& optimizer, int64_t num_elements,
      DType narrowed);

  Buffer* master() { return master_.get(); }
  // The state arrays of the optimizer; null if it keeps fewer.
  Buffer* state0() { return state0_.get(); }
  Buffer* state1() { return state1_.get(); }
  DType narrowed_dtype() const { return narrowed_; }

  // A snapshot to write the next version into. When none is free, the readers
  // of the oldest version that has readers are revoked (never those of the
  // current one), and this waits for their memory. *revoked: how many versions
  // were revoked, 0 or 1.
  std::shared_ptr<Snapshot> NextSnapshot(int* revoked);

  // `snapshot` can be found as `version` from now on, and the oldest of three
  // versions cannot any more.
  void Publish(uint64_t version, std::shared_ptr<const Snapshot> snapshot);

  // The snapshot of `version`, or null.
  std::shared_ptr<const Snapshot> Find(uint64_t version) const;

 private:
  ParameterStore(std::vector<SnapshotBuffers> buffers, DType narrowed)
      : narrowed_(narrowed), pool_(std::move(buffers), narrowed) {}

  struct Version {
    uint64_t version;
    std::shared_ptr<const Snapshot> snapshot;
  };
  void RetireOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Versions that cannot be found any more, but have readers; oldest first.
  std::vector<std::shared_ptr<const Snapshot>> RetiredWithReaders()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DType narrowed_;
  std::unique_ptr<Buffer> master_;
  std::unique_ptr<Buffer> state0_;
  std::unique_ptr<Buffer> state1_;
  SnapshotPool pool_;  // synchronises itself

  mutable Mutex mutex_;
  std::vector<Version> versions_ ABSL_GUARDED_BY(mutex_);  // ascending
  std::vector<std::weak_ptr<const Snapshot>> retired_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_PARAMETER_STORE_H_
