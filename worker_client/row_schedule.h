// Which slices of a row may go to which shard, while its tensors come one by
// one. Pure: no bytes, no calls, no locks, so that a test can play every order.
#ifndef AGG_WORKER_CLIENT_ROW_SCHEDULE_H_
#define AGG_WORKER_CLIENT_ROW_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker_client/shard_router.h"

namespace agg {

// A slice is ready as soon as its tensor was given: slices never span tensors.
// Slices that are ready and not yet taken gather, so that a stream that was
// busy meanwhile sends them together. Thread-compatible.
class RowSchedule {
 public:
  // REQUIRES: router outlives this.
  explicit RowSchedule(const ShardRouter* router);

  // The tensors' views are final, or they are absent. REQUIRES: none was given
  // before.
  void Give(absl::Span<const int> tensors);

  // The slices of `shard` that are ready and were not taken before, ascending.
  std::vector<int32_t> Take(int shard);

 private:
  const ShardRouter* const router_;
  std::vector<std::vector<int32_t>> ready_;  // by shard
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_SCHEDULE_H_
