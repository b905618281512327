// The addresses of a host, by a deadline, which the system's own call has not.
#ifndef AGG_SERVER_TLS_RESOLVE_HOST_H_
#define AGG_SERVER_TLS_RESOLVE_HOST_H_

#include <sys/socket.h>

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "server/base/address.h"

namespace agg {

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

using Resolver = std::function<std::vector<SocketAddress>(const Address&)>;

// Lookups that a name server holds up, of the process.
inline constexpr int kMaxLookups = 4;

// None: nobody has that name, it is not known by `deadline`, or kMaxLookups are
// on their way already. A lookup that is late goes on by itself, on a thread of
// its own. `resolve` null: the system's. Thread-safe.
std::vector<SocketAddress> ResolveHost(const Address& address,
                                       absl::Time deadline,
                                       const Resolver& resolve = nullptr);

}  // namespace agg

#endif  // AGG_SERVER_TLS_RESOLVE_HOST_H_
