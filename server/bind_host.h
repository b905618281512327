// Which address of its host a server listens on.
#ifndef AGG_SERVER_BIND_HOST_H_
#define AGG_SERVER_BIND_HOST_H_

#include <string>

#include "server/base/address.h"

namespace agg {

// Loopback, unless `bind` (of --bind) names another. `address`: of the shard,
// as others know it.
std::string BindHost(const Address& address, const std::string& bind);

// Logs what is unsafe, or will not work, about listening on `host`.
void WarnAboutBind(const Address& address, const std::string& host);

}  // namespace agg

#endif  // AGG_SERVER_BIND_HOST_H_
