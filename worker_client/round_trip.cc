// Where every shard's part is small, what a round costs is its trips.
#include "worker_client/round_trip.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/shard_plan.h"

namespace agg {

std::vector<int> TripShards(const ShardRouter& router, DType dtype) {
  std::vector<int> shards;
  for (int shard = 0; shard < router.num_shards(); ++shard) {
    const auto& slices = router.plan().slices_of_shard[shard];
    if (slices.empty()) continue;
    int64_t bytes = 0;
    for (const int32_t slice : slices) {
      bytes += router.plan().slices[slice].num_elements * DTypeBytes(dtype);
    }
    if (bytes > kMaxTripBytes || slices.size() > kMaxTripSlices) return {};
    shards.push_back(shard);
  }
  if (shards.empty() || shards.front() != 0) return {};
  return shards;
}

std::vector<int> PipelinedTripShards(const ShardRouter& router) {
  std::vector<int> shards;
  for (int shard = 0; shard < router.num_shards(); ++shard) {
    if (!router.plan().slices_of_shard[shard].empty()) shards.push_back(shard);
  }
  if (shards.empty() || shards.front() != 0) return {};
  return shards;
}

absl::Duration TripTimeout(const ClientOptions& options, bool pipelined) {
  return pipelined ? options.transfer_timeout + options.round_timeout
                   : std::min(options.transfer_timeout, options.round_timeout);
}

}  // namespace agg
