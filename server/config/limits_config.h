// `limits` of the configuration, of all callers and of an identity.
#ifndef AGG_SERVER_CONFIG_LIMITS_CONFIG_H_
#define AGG_SERVER_CONFIG_LIMITS_CONFIG_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/access/call_limits.h"
#include "server/base/field_error.h"

namespace agg {

// Most workers of a job: a slice's compensated Gram must fit into a message.
inline constexpr int32_t kMaxWorkers = 512;
inline constexpr int32_t kDefaultMaxConnections = 4096;

// The least that may be set of an identity: a call of each kind.
CallLimits LeastOfOne();
// The least of all callers with which `workers` of them can train, also where
// one identity, which has three quarters of it (ShareOf), has them all.
// REQUIRES: 1 to kMaxWorkers.
CallLimits LeastOfAll(int32_t workers);

// What is 0 is as in `otherwise`, what is below `least` is bad. A line in
// *errors for each bad field; `path` is that of the message: "security.limits".
CallLimits TakeLimits(absl::string_view path, const v1::LimitsConfig& config,
                      const CallLimits& otherwise, const CallLimits& least,
                      FieldErrors* errors);

// security.limits.max_connections of a job of `workers`.
int32_t TakeMaxConnections(const v1::LimitsConfig& config, int32_t workers,
                           FieldErrors* errors);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_LIMITS_CONFIG_H_
