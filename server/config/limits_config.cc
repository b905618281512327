#include "server/config/limits_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/access/access_rules.h"
#include "server/base/dcheck.h"

namespace agg {
namespace {

// Three quarters of it (ShareOf) have room for a Join beside a Push, 8 MiB
// each, and for what else a worker has open. With less a call would be refused
// for ever.
constexpr int64_t kMinBytes = int64_t{32} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostCalls = 1000000;
constexpr double kMinJoins = 0.01;
// For shards, operators and one worker.
constexpr int64_t kMinConnections = 16;
// A client has three to shard 0 at most (worker_client/job_view.cc), and an
// eighth of all is for hosts with few of them (connection_listener.h).
constexpr int64_t kConnectionsPerWorker = 4;
// What a worker has open at shard 0 at a time: one of each, and but for the
// Commit for as long as it is in.
constexpr const char* kStreamsOfWorker[] = {
    "agg.v1.Coordinator/Attend", "agg.v1.Shard/Push", "agg.v1.Shard/Pull"};
constexpr char kCommit[] = "agg.v1.Coordinator/Commit";
constexpr char kJoin[] = "agg.v1.Coordinator/Join";

// A field that is 0, or from `least` to `most`.
template <typename Number>
Number Take(absl::string_view path, absl::string_view field, Number value,
            Number otherwise, Number least, Number most, FieldErrors* errors) {
  if (value == 0) return otherwise;
  // Written so that a NaN is refused.
  if (!(value >= least && value <= most)) {
    errors->Add(
        FieldError(absl::StrCat(path, ".", field), absl::StrCat(value),
                   absl::StrCat("0 (the default), or ", least, " to ", most)));
  }
  return value;
}

}  // namespace

CallLimits LeastOfOne() {
  CallLimits least;
  least.max_sessions = 1;
  least.max_streams = 1;
  least.max_waiting_calls = 1;
  least.joins_per_second = kMinJoins;
  least.max_bytes_in_flight = kMinBytes;
  return least;
}

CallLimits LeastOfAll(int32_t workers) {
  AGG_DCHECK(workers >= 1 && workers <= kMaxWorkers);
  int64_t of_worker = FindMethod(kCommit)->bytes;
  for (const char* stream : kStreamsOfWorker) {
    of_worker += FindMethod(stream)->bytes;
  }
  CallLimits least = LeastOfOne();
  least.max_sessions = workers;
  // Three quarters are Attend, Push and Pull of each.
  least.max_streams = 4 * workers;
  // Three quarters, which are rounded down, are a Commit of each.
  least.max_waiting_calls = 2 * workers;
  // Someone who comes back joins beside the others.
  const int64_t bytes = workers * of_worker + FindMethod(kJoin)->bytes;
  least.max_bytes_in_flight = std::max(kMinBytes, bytes / 3 * 4 + 4);
  return least;
}

CallLimits TakeLimits(absl::string_view path, const v1::LimitsConfig& config,
                      const CallLimits& otherwise, const CallLimits& least,
                      FieldErrors* errors) {
  CallLimits limits;
  const int32_t most = kMostCalls;
  limits.max_sessions =
      Take(path, "max_sessions", config.max_sessions(), otherwise.max_sessions,
           least.max_sessions, most, errors);
  limits.max_streams =
      Take(path, "max_streams", config.max_streams(), otherwise.max_streams,
           least.max_streams, most, errors);
  limits.max_waiting_calls =
      Take(path, "max_waiting_calls", config.max_waiting_calls(),
           otherwise.max_waiting_calls, least.max_waiting_calls, most, errors);
  limits.joins_per_second =
      Take(path, "joins_per_second", config.joins_per_second(),
           otherwise.joins_per_second, least.joins_per_second,
           static_cast<double>(kMostCalls), errors);
  limits.max_bytes_in_flight =
      Take(path, "max_bytes_in_flight",
           static_cast<int64_t>(config.max_bytes_in_flight()),
           otherwise.max_bytes_in_flight, least.max_bytes_in_flight, kMostBytes,
           errors);
  return limits;
}

int32_t TakeMaxConnections(const v1::LimitsConfig& config, int32_t workers,
                           FieldErrors* errors) {
  const int64_t least =
      std::max(kMinConnections, kConnectionsPerWorker * workers);
  return static_cast<int32_t>(Take<int64_t>(
      "security.limits", "max_connections", config.max_connections(),
      kDefaultMaxConnections, least, kMostCalls, errors));
}

}  // namespace agg
