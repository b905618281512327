#include "server/config/limits_config.h"

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// Three quarters of it (ShareOf) have room for a Join beside a Push, 8 MiB each,
// and for what else a worker has open. With less a call would be refused for
// ever.
constexpr int64_t kMinBytes = int64_t{32} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostCalls = 1000000;
constexpr double kMinJoins = 0.01;
// For shards, operators and one worker.
constexpr int64_t kMinConnections = 16;

// A field that is 0, or from `least` to `most`.
template <typename Number>
Number Take(absl::string_view path, absl::string_view field, Number value,
            Number otherwise, Number least, Number most, FieldErrors* errors) {
  // Written so that a NaN is refused.
  errors->Add(
      CheckField(value == 0 || (value >= least && value <= most),
                 absl::StrCat(path, ".", field), static_cast<double>(value),
                 absl::StrCat("0 (the default), or ", least, " to ", most)));
  return value == 0 ? otherwise : value;
}

}  // namespace

CallLimits TakeLimits(absl::string_view path, const v1::LimitsConfig& config,
                      const CallLimits& otherwise, FieldErrors* errors) {
  CallLimits limits;
  const int32_t most = kMostCalls;
  limits.max_sessions = Take(path, "max_sessions", config.max_sessions(),
                             otherwise.max_sessions, 1, most, errors);
  limits.max_streams = Take(path, "max_streams", config.max_streams(),
                            otherwise.max_streams, 1, most, errors);
  limits.max_waiting_calls =
      Take(path, "max_waiting_calls", config.max_waiting_calls(),
           otherwise.max_waiting_calls, 1, most, errors);
  limits.joins_per_second =
      Take(path, "joins_per_second", config.joins_per_second(),
           otherwise.joins_per_second, kMinJoins,
           static_cast<double>(kMostCalls), errors);
  limits.max_bytes_in_flight =
      Take(path, "max_bytes_in_flight",
           static_cast<int64_t>(config.max_bytes_in_flight()),
           otherwise.max_bytes_in_flight, kMinBytes, kMostBytes, errors);
  return limits;
}

int32_t TakeMaxConnections(const v1::LimitsConfig& config,
                           FieldErrors* errors) {
  return static_cast<int32_t>(Take<int64_t>(
      "security.limits", "max_connections", config.max_connections(),
      kDefaultMaxConnections, kMinConnections, kMostCalls, errors));
}

}  // namespace agg
