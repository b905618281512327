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

// Which bytes a pull brings.
struct PullOrigin {
  uint64_t version = 0;
  uint64_t past = 0;   // of the job: JobView::past
  uint64_t epoch = 0;  // that it is asked in
  // Else it is on its way in a pipelined round (P43): its epoch may end before
  // it exists, and another one make it of other rows.
  bool published = true;
};

// A slice that has landed is not written again by the same pull, so that its
// tensor may be read while the rest is under way. Thread-safe.
class PullArrivals {
 public:
  // REQUIRES: router outlives this.
  explicit PullArrivals(const ShardRouter* router);

  // The slice has its bytes, checked.
  void Land(int32_t slice);
  bool landed(int32_t slice) const;
  // The pull begins, or is heard to be of a version that is published now. What
  // has landed stays if it begins again with the same bytes: of that version,
  // and of the same past of the job, and of the same epoch as long as the
  // version was not published.
  void Begin(const PullOrigin& origin);
  // Whether Await has given a tensor that a later Begin took back.
  bool withdrawn() const;
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
  PullOrigin origin_ ABSL_GUARDED_BY(mutex_);
  mutable bool given_ ABSL_GUARDED_BY(mutex_) = false;  // since Begin
  bool withdrawn_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PULL_ARRIVALS_H_
