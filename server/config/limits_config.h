// `limits` of the configuration, of all callers and of an identity.
#ifndef AGG_SERVER_CONFIG_LIMITS_CONFIG_H_
#define AGG_SERVER_CONFIG_LIMITS_CONFIG_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/access/call_limits.h"
#include "server/base/field_error.h"

namespace agg {

inline constexpr int32_t kDefaultMaxConnections = 4096;

// What is 0 is as in `otherwise`. A line in *errors for each bad field; `path`
// is that of the message: "security.limits".
CallLimits TakeLimits(absl::string_view path, const v1::LimitsConfig& config,
                      const CallLimits& otherwise, FieldErrors* errors);

// security.limits.max_connections.
int32_t TakeMaxConnections(const v1::LimitsConfig& config, FieldErrors* errors);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_LIMITS_CONFIG_H_
