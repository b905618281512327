// Lists of ready slices by shard, sorted when they are taken.
#include "worker_client/row_schedule.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace agg {

RowSchedule::RowSchedule(const ShardRouter* router)
    : router_(router), ready_(static_cast<size_t>(router->num_shards())) {}

void RowSchedule::Give(absl::Span<const int> tensors) {
  const ShardPlan& plan = router_->plan();
  for (const int tensor : tensors) {
    for (const int32_t index : plan.slices_of_tensor[tensor]) {
      ready_[plan.slices[index].shard].push_back(index);
    }
  }
}

std::vector<int32_t> RowSchedule::Take(int shard) {
  std::vector<int32_t> slices = std::move(ready_[shard]);
  ready_[shard].clear();
  std::sort(slices.begin(), slices.end());
  return slices;
}

}  // namespace agg
