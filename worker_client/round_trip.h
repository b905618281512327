// What goes along with a row in one trip (P41), and what comes back with it.
#ifndef AGG_WORKER_CLIENT_ROUND_TRIP_H_
#define AGG_WORKER_CLIENT_ROUND_TRIP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "worker_client/client_types.h"
#include "worker_client/parameter_sink.h"
#include "worker_client/pull_into.h"
#include "worker_client/shard_router.h"

namespace agg {

// Limits of a shard's part of a row that goes in one trip. Larger ones gain
// nothing by it, unless the job is pipelined: their time is that of their
// bytes.
inline constexpr int64_t kMaxTripBytes = int64_t{1} << 20;
inline constexpr size_t kMaxTripSlices = 1024;

// Returns the shards that rows go to in one trip, ascending: those with slices,
// if each gets one frame, and shard 0 one with the commit. Else none.
std::vector<int> TripShards(const ShardRouter& router, DType dtype);
// Returns those of a pipelined job (P43): all with slices, however large their
// parts are, if shard 0 is one of them. Else none.
std::vector<int> PipelinedTripShards(const ShardRouter& router);

// Returns how long the worker waits for the trip's end, which is that of the
// round. It falls back to ordinary calls then, which for a small row is no
// loss. A pipelined row would be sent again: that trip has as long as the
// calls.
absl::Duration TripTimeout(const ClientOptions& options, bool pipelined);

// One attempt of a trip, at the shards of one epoch.
struct RoundTrip {
  // The first frame to each shard asks for all of this, so that the version
  // comes while the row is on its way (P43); else the last one does (P41).
  bool pipelined = false;
  // Complete but for row_crc32c, which a pipelined one does not have.
  v1::CommitRequest commit;
  v1::PullRequest pull;
  ParameterSink* sink = nullptr;  // takes the version; outlives the trip

  absl::optional<v1::RoundOutcome> outcome;  // nothing: it has not come
  bool pulled = false;                       // all of the version has come
};

// What a worker wants to be tried in one trip. REQUIRES: what is pointed to
// outlives it.
struct TripWish {
  const PushInfo* info = nullptr;
  const PullInto* into = nullptr;

  absl::optional<RoundOutcome> outcome;  // nothing: ordinary calls are needed
  // The outcome's version is where it belongs, and is version().
  bool pulled = false;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROUND_TRIP_H_
