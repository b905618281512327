// Which address of its host a server listens on.
#ifndef AGG_SERVER_BIND_HOST_H_
#define AGG_SERVER_BIND_HOST_H_

#include <string>

#include "absl/status/status.h"
#include "server/base/address.h"

namespace agg {

// Loopback, unless `bind` (of --bind) names another. `address`: of the shard,
// as others know it.
std::string BindHost(const Address& address, const std::string& bind);

// INVALID_ARGUMENT if others could reach `host` without TLS, which `insecure`
// (security.insecure) alone allows.
absl::Status CheckBind(const std::string& host, bool tls, bool insecure);

// Whether anybody who reaches the port may do anything.
bool IsInsecure(const std::string& host, bool tls);

// Logs what is unsafe, or will not work, about listening on `host`.
void WarnAboutBind(const Address& address, const std::string& host, bool tls);

}  // namespace agg

#endif  // AGG_SERVER_BIND_HOST_H_
