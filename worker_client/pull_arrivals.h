// Which tensors of a pull have arrived, for those who wait for single ones.
#ifndef AGG_WORKER_CLIENT_PULL_ARRIVALS_H_
#define AGG_WORKER_CLIENT_PULL_ARRIVALS_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "worker_client/shard_router.h"

namespace agg {

// A slice that has landed is not written again by the same pull, so that its
// tensor may be read while the rest is under way. Thread-safe.
class PullArrivals {
 public:
  // REQUIRES: router outlives this.
  explicit PullArrivals(const ShardRouter* router);

  // The slice has its bytes, checked.
  void Land(int32_t slice);
  bool landed(int32_t slice) const;
  // The pull begins. What has landed stays if it begins again with the same
  // bytes: of that version, and of the same past of the job.
  void Begin(uint64_t version, uint64_t past);
  // Nothing more arrives: every wait ends.
  void End();

  // Waits until the tensor is complete (true), nothing more arrives, or
  // `deadline`. REQUIRES: an index of the manifest.
  bool Await(int tensor, absl::Time deadline) const;

 private:
  const ShardRouter* const router_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<bool> landed_ ABSL_GUARDED_BY(mutex_);      // by slice
  std::vector<int32_t> missing_ ABSL_GUARDED_BY(mutex_);  // slices, by tensor
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t past_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PULL_ARRIVALS_H_
