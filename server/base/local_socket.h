// Abstract Unix sockets: they have a name in the network namespace and no file.
// What a server and a client must agree on, without gRPC.
#ifndef AGG_SERVER_BASE_LOCAL_SOCKET_H_
#define AGG_SERVER_BASE_LOCAL_SOCKET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg {

// "agg-" and 16 hexadecimal digits of `life`, random bits of one process's run:
// hard to guess, and never that of another run.
std::string LocalSocketName(uint64_t life);

// 1 to 64 letters, digits, '-' and '.': what can stand in a gRPC target as it
// is. A client checks what it was sent.
bool IsLocalSocketName(absl::string_view name);

// What gRPC calls the socket, to listen or to connect: "unix-abstract:NAME".
std::string LocalSocketTarget(absl::string_view name);

// Listens on it for a moment. UNAVAILABLE with the system's reason: the name is
// taken, or the process may have no such sockets. REQUIRES: it is a name.
absl::Status CheckLocalListen(absl::string_view name);

// Whether a process of this user or of root listens on it in this network
// namespace. Connects for a moment; never waits. False for what is not a name.
bool CanConnectLocally(absl::string_view name);

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOCAL_SOCKET_H_
